// Package lines lets a test drive a client program: commands come as lines of JSON on standard input, each is answered, in
// order, by one line of JSON on standard output: {"ok": result} or {"error": text}.
package lines

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Message is one message of a command.
type Message struct {
	Body         string         `json:"body"`
	ID           *int64         `json:"id"`
	Key          string         `json:"key"`
	FilterValue  *string        `json:"filter_value"`
	Subject      *string        `json:"subject"`
	UserID       *string        `json:"user_id"`
	To           *string        `json:"to"`
	Priority     *uint8         `json:"priority"`
	CreationTime *int64         `json:"creation_time"`
	Properties   map[string]any `json:"properties"`
	Size         int            `json:"size"`
	Tag          string         `json:"tag"`
	Keys         []string       `json:"keys"`
	Group        string         `json:"group"`
	DueMS        int64          `json:"due_ms"`
	Level        int            `json:"level"`
}

// Command is what a test asks for; each program reads the fields it knows.
type Command struct {
	Do              string         `json:"do"`
	Host            string         `json:"host"`
	Port            int            `json:"port"`
	User            string         `json:"user"`
	Password        string         `json:"password"`
	ID              string         `json:"id"`
	Stream          string         `json:"stream"`
	SuperStream     string         `json:"super_stream"`
	Exchange        string         `json:"exchange"`
	Key             string         `json:"key"`
	Name            string         `json:"name"`
	Offset          any            `json:"offset"`
	Arguments       map[string]any `json:"arguments"`
	Messages        []Message      `json:"messages"`
	FilterValues    []string       `json:"filter_values"`
	MatchUnfiltered bool           `json:"match_unfiltered"`
	PostFilter      *struct {
		Property string `json:"property"`
		Value    any    `json:"value"`
	} `json:"post_filter"`
	MessageProperties     map[string]string `json:"properties"`
	ApplicationProperties map[string]any    `json:"application_properties"`
	SQL                   string            `json:"sql"`
	Credit                int32             `json:"credit"`
	SingleActive          bool              `json:"single_active"`
	Compression           string            `json:"compression"`
	SubBatch              int               `json:"sub_batch"`
	Partitions            int               `json:"partitions"`
	BindingKeys           []string          `json:"binding_keys"`
	Routing               string            `json:"routing"`
	Until                 []string          `json:"until"`
	Seconds               float64           `json:"seconds"`
	Topic                 string            `json:"topic"`
	// By topic: `sql` or `tag`, and the expression.
	Topics           map[string]map[string]string `json:"topics"`
	Group            string                       `json:"group"`
	WaitSeconds      float64                      `json:"wait_seconds"`
	Count            int32                        `json:"count"`
	InvisibleSeconds float64                      `json:"invisible_seconds"`
	Number           int64                        `json:"number"`
	Numbers          []int64                      `json:"numbers"`
	Fails            map[string]int               `json:"fails"`
	Keys             []string                     `json:"keys"`
	TLS              bool                         `json:"tls"`
	How              string                       `json:"how"`
	Orderly          bool                         `json:"orderly"`
	Broadcasting     bool                         `json:"broadcasting"`
	MaxRetries       int32                        `json:"max_retries"`
	Handle           string                       `json:"handle"`
}

// Handler does one command.
type Handler func(command *Command) (any, error)

// Serve answers commands until standard input ends.
func Serve(handlers map[string]Handler) {
	plain := map[string]func(*Command) (any, error){}
	for name, handler := range handlers {
		plain[name] = handler
	}
	ServeAs(Command{User: "guest", Password: "guest", Seconds: 20}, plain)
}

// ServeAs answers commands of another kind; `unsaid` is one that says nothing.
func ServeAs[C any](unsaid C, handlers map[string]func(command *C) (any, error)) {
	replies := os.Stdout
	os.Stdout = os.Stderr
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		command, asked := unsaid, struct{ Do string }{}
		reply := map[string]any{}
		if err := errors.Join(json.Unmarshal(line, &asked), json.Unmarshal(line, &command)); err != nil {
			reply["error"] = err.Error()
		} else if handlers[asked.Do] == nil {
			reply["error"] = "unknown command " + asked.Do
		} else if result, err := handlers[asked.Do](&command); err != nil {
			reply["error"] = err.Error()
		} else {
			reply["ok"] = result
		}
		encoded, err := json.Marshal(reply)
		if err != nil {
			encoded = fmt.Appendf(nil, `{"error": %q}`, err.Error())
		}
		fmt.Fprintf(replies, "%s\n", encoded)
	}
}

// Plain gives whole numbers, which JSON reads as floats, back as integers.
func Plain(properties map[string]any) map[string]any {
	result := map[string]any{}
	for name, value := range properties {
		if number, isNumber := value.(float64); isNumber && number == float64(int64(number)) {
			value = int64(number)
		}
		result[name] = value
	}
	return result
}

// Received is a message as a consumer got it.
type Received struct {
	Body        string         `json:"body"`
	Offset      int64          `json:"offset"`
	Stream      string         `json:"stream"`
	FilterValue any            `json:"filter_value"`
	Subject     *string        `json:"subject"`
	Properties  map[string]any `json:"properties"`
	Number      int64          `json:"number"`
	Topic       string         `json:"topic"`
	MessageID   string         `json:"message_id"`
	Tag         *string        `json:"tag"`
	Keys        []string       `json:"keys"`
	Group       *string        `json:"group"`
	Attempt     int32          `json:"attempt"`
	Queue       int            `json:"queue"`
	IsCorrupted bool           `json:"is_corrupted"`
}

// LongBytes is how long a body may be that is told as it is; of longer ones the length and the MD5 are told.
const LongBytes = 1000

// Text gives a body as it is told.
func Text(body []byte) string {
	if len(body) <= LongBytes {
		return string(body)
	}
	return fmt.Sprintf("%d %x", len(body), md5.Sum(body))
}

// Bytes gives the body of a message to be sent.
func (message *Message) Bytes() []byte {
	if message.Size > 0 {
		return bytes.Repeat([]byte("x"), message.Size)
	}
	return []byte(message.Body)
}

// Failures counts down how many times more a listener fails each body.
type Failures struct {
	mutex sync.Mutex
	left  map[string]int
}

// NewFailures takes the counts by body.
func NewFailures(left map[string]int) *Failures {
	counts := map[string]int{}
	for body, count := range left {
		counts[body] = count
	}
	return &Failures{left: counts}
}

// Next says whether this delivery fails.
func (failures *Failures) Next(body string) bool {
	failures.mutex.Lock()
	defer failures.mutex.Unlock()
	failures.left[body]--
	return failures.left[body] >= 0
}

// Inbox is what a consumer has received and nobody has taken yet.
type Inbox struct {
	mutex    sync.Mutex
	changed  chan struct{}
	messages []Received
	closed   string
}

// NewInbox gives an empty one.
func NewInbox() *Inbox {
	return &Inbox{changed: make(chan struct{}, 1)}
}

func (inbox *Inbox) wake() {
	select {
	case inbox.changed <- struct{}{}:
	default:
	}
}

// Put adds a message.
func (inbox *Inbox) Put(message Received) {
	inbox.mutex.Lock()
	inbox.messages = append(inbox.messages, message)
	inbox.mutex.Unlock()
	inbox.wake()
}

// Close says that the consumer was ended by the other side.
func (inbox *Inbox) Close(reason string) {
	inbox.mutex.Lock()
	inbox.closed = reason
	inbox.mutex.Unlock()
	inbox.wake()
}

func (inbox *Inbox) bodies() []string {
	var result []string
	for _, message := range inbox.messages {
		result = append(result, message.Body)
	}
	return result
}

func (inbox *Inbox) look(until []string) (taken []Received, closed string, complete bool) {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	there := map[string]bool{}
	for _, body := range inbox.bodies() {
		there[body] = true
	}
	for _, body := range until {
		if !there[body] {
			return nil, inbox.closed, false
		}
	}
	taken = append([]Received{}, inbox.messages...)
	inbox.messages = nil
	return taken, inbox.closed, true
}

// Take gives everything received since the last call, once all bodies of `until` are among it.
func (inbox *Inbox) Take(command *Command) (any, error) {
	deadline := time.After(time.Duration(command.Seconds * float64(time.Second)))
	for {
		taken, closed, complete := inbox.look(command.Until)
		if complete {
			return taken, nil
		}
		if closed != "" {
			return nil, fmt.Errorf("closed: %s", closed)
		}
		select {
		case <-inbox.changed:
		case <-deadline:
			inbox.mutex.Lock()
			defer inbox.mutex.Unlock()
			return nil, fmt.Errorf("did not receive %v, but %v", command.Until, inbox.bodies())
		}
	}
}

// End gives the reason why the other side ended the consumer, once it has.
func (inbox *Inbox) End(command *Command) (any, error) {
	deadline := time.After(time.Duration(command.Seconds * float64(time.Second)))
	for {
		if _, closed, _ := inbox.look([]string{"\x00"}); closed != "" {
			return closed, nil
		}
		select {
		case <-inbox.changed:
		case <-deadline:
			return nil, fmt.Errorf("was not closed")
		}
	}
}
