// azservicebus, driven by lines of JSON.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headgate/interop/lines"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// receiving is what receivers with and without a session have.
type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	ReceiveDeferredMessages(context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	PeekMessages(context.Context, int, *azservicebus.PeekMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.AbandonMessageOptions) error
	DeferMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeferMessageOptions) error
	DeadLetterMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.DeadLetterOptions) error
	Close(context.Context) error
}

type message struct {
	Body          *string        `json:"body"`
	Subject       *string        `json:"subject"`
	CorrelationID *string        `json:"correlation_id"`
	Properties    map[string]any `json:"properties"`
	Session       *string        `json:"session"`
	TTL           int64          `json:"ttl_ms"`
	Due           int64          `json:"due_ms"`
}

type command struct {
	ConnectionString string         `json:"connection_string"`
	Entity           string         `json:"entity"`
	Messages         []message      `json:"messages"`
	Batch            bool           `json:"batch"`
	Due              int64          `json:"due_ms"`
	ID               string         `json:"id"`
	Topic            string         `json:"topic"`
	Subscription     string         `json:"subscription"`
	Queue            string         `json:"queue"`
	Deletes          bool           `json:"deletes"`
	DeadLetters      bool           `json:"dead_letters"`
	BySession        bool           `json:"by_session"`
	Session          *string        `json:"session"`
	Set              bool           `json:"set"`
	State            *string        `json:"state"`
	Count            int            `json:"count"`
	From             *int64         `json:"from"`
	Numbers          []int64        `json:"numbers"`
	Number           int64          `json:"number"`
	How              string         `json:"how"`
	Reason           *string        `json:"reason"`
	Description      *string        `json:"description"`
	Properties       map[string]any `json:"properties"`
	Seconds          float64        `json:"seconds"`
}

var (
	client    *azservicebus.Client
	senders   = map[string]*azservicebus.Sender{}
	receivers = map[string]receiving{}
	held      = map[string]*azservicebus.ReceivedMessage{}
	states    = map[azservicebus.MessageState]string{
		azservicebus.MessageStateActive:    "active",
		azservicebus.MessageStateDeferred:  "deferred",
		azservicebus.MessageStateScheduled: "scheduled",
	}
)

func within(seconds float64) context.Context {
	lasts := time.Duration(seconds * float64(time.Second))
	limited, cancel := context.WithTimeout(context.Background(), lasts)
	// Behind the deadline, whose error is another one.
	time.AfterFunc(lasts+time.Second, cancel)
	return limited
}

func soon() context.Context {
	return within(20)
}

func made(given message) *azservicebus.Message {
	result := &azservicebus.Message{
		Subject:               given.Subject,
		CorrelationID:         given.CorrelationID,
		SessionID:             given.Session,
		ApplicationProperties: lines.Plain(given.Properties),
	}
	if given.Body != nil {
		result.Body = []byte(*given.Body)
	}
	if given.TTL > 0 {
		lives := time.Duration(given.TTL) * time.Millisecond
		result.TimeToLive = &lives
	}
	if given.Due > 0 {
		due := time.UnixMilli(given.Due)
		result.ScheduledEnqueueTime = &due
	}
	return result
}

func all(given []message) []*azservicebus.Message {
	result := []*azservicebus.Message{}
	for _, each := range given {
		result = append(result, made(each))
	}
	return result
}

func told(found []*azservicebus.ReceivedMessage) []map[string]any {
	result := []map[string]any{}
	for _, each := range found {
		entry := map[string]any{
			"body":                     string(each.Body),
			"message_id":               each.MessageID,
			"sequence_number":          each.SequenceNumber,
			"enqueued_sequence_number": each.EnqueuedSequenceNumber,
			"delivery_count":           int64(each.DeliveryCount) - 1,
			"session":                  each.SessionID,
			"state":                    states[each.State],
			"subject":                  each.Subject,
			"correlation_id":           each.CorrelationID,
			"properties":               each.ApplicationProperties,
			"dead_letter_reason":       each.DeadLetterReason,
			"dead_letter_description":  each.DeadLetterErrorDescription,
		}
		if each.ExpiresAt != nil && each.EnqueuedTime != nil {
			entry["expires_after_ms"] = each.ExpiresAt.Sub(*each.EnqueuedTime).Milliseconds()
		}
		result = append(result, entry)
	}
	return result
}

func kept(id string, found []*azservicebus.ReceivedMessage) []map[string]any {
	for _, each := range found {
		held[fmt.Sprintf("%s/%d", id, *each.SequenceNumber)] = each
	}
	return told(found)
}

func connect(asked *command) (any, error) {
	var err error
	options := &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
	client, err = azservicebus.NewClientFromConnectionString(asked.ConnectionString, options)
	return nil, err
}

func sender(entity string) (*azservicebus.Sender, error) {
	if senders[entity] == nil {
		found, err := client.NewSender(entity, nil)
		if err != nil {
			return nil, err
		}
		senders[entity] = found
	}
	return senders[entity], nil
}

func send(asked *command) (any, error) {
	through, err := sender(asked.Entity)
	if err != nil {
		return nil, err
	}
	if !asked.Batch {
		for _, each := range asked.Messages {
			if err := through.SendMessage(soon(), made(each), nil); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	batch, err := through.NewMessageBatch(soon(), nil)
	if err != nil {
		return nil, err
	}
	for _, each := range asked.Messages {
		if err := batch.AddMessage(made(each), nil); err != nil {
			return nil, err
		}
	}
	return nil, through.SendMessageBatch(soon(), batch, nil)
}

func schedule(asked *command) (any, error) {
	through, err := sender(asked.Entity)
	if err != nil {
		return nil, err
	}
	return through.ScheduleMessages(soon(), all(asked.Messages), time.UnixMilli(asked.Due), nil)
}

func cancel(asked *command) (any, error) {
	through, err := sender(asked.Entity)
	if err != nil {
		return nil, err
	}
	return nil, through.CancelScheduledMessages(soon(), asked.Numbers, nil)
}

func withSession(asked *command, mode azservicebus.ReceiveMode) (*azservicebus.SessionReceiver, error) {
	options := &azservicebus.SessionReceiverOptions{ReceiveMode: mode}
	limited := within(asked.Seconds)
	switch {
	case asked.Queue != "" && asked.Session != nil:
		return client.AcceptSessionForQueue(limited, asked.Queue, *asked.Session, options)
	case asked.Queue != "":
		return client.AcceptNextSessionForQueue(limited, asked.Queue, options)
	case asked.Session != nil:
		return client.AcceptSessionForSubscription(limited, asked.Topic, asked.Subscription, *asked.Session, options)
	}
	return client.AcceptNextSessionForSubscription(limited, asked.Topic, asked.Subscription, options)
}

func open(asked *command) (any, error) {
	mode := azservicebus.ReceiveModePeekLock
	if asked.Deletes {
		mode = azservicebus.ReceiveModeReceiveAndDelete
	}
	if asked.BySession {
		found, err := withSession(asked, mode)
		if err != nil {
			return nil, err
		}
		receivers[asked.ID] = found
		return found.SessionID(), nil
	}
	options := &azservicebus.ReceiverOptions{ReceiveMode: mode}
	if asked.DeadLetters {
		options.SubQueue = azservicebus.SubQueueDeadLetter
	}
	var found *azservicebus.Receiver
	var err error
	if asked.Queue != "" {
		found, err = client.NewReceiverForQueue(asked.Queue, options)
	} else {
		found, err = client.NewReceiverForSubscription(asked.Topic, asked.Subscription, options)
	}
	receivers[asked.ID] = found
	return nil, err
}

// noSession gives the error of asking for a session that is not to be had in some seconds.
func noSession(asked *command) (any, error) {
	found, err := withSession(asked, azservicebus.ReceiveModePeekLock)
	if err == nil {
		return nil, found.Close(soon())
	}
	return err.Error(), nil
}

func session(asked *command) *azservicebus.SessionReceiver {
	return receivers[asked.ID].(*azservicebus.SessionReceiver)
}

func state(asked *command) (any, error) {
	if asked.Set {
		var octets []byte
		if asked.State != nil {
			octets = []byte(*asked.State)
		}
		if err := session(asked).SetSessionState(soon(), octets, nil); err != nil {
			return nil, err
		}
	}
	octets, err := session(asked).GetSessionState(soon(), nil)
	// It says no state as one of no bytes.
	if len(octets) == 0 || err != nil {
		return nil, err
	}
	return string(octets), nil
}

func renewSession(asked *command) (any, error) {
	if err := session(asked).RenewSessionLock(soon(), nil); err != nil {
		return nil, err
	}
	return session(asked).LockedUntil().UnixMilli(), nil
}

func receive(asked *command) (any, error) {
	found := []*azservicebus.ReceivedMessage{}
	for len(found) < asked.Count {
		more, err := receivers[asked.ID].ReceiveMessages(within(asked.Seconds), asked.Count-len(found), nil)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return kept(asked.ID, found), nil
}

func receiveDeferred(asked *command) (any, error) {
	found, err := receivers[asked.ID].ReceiveDeferredMessages(soon(), asked.Numbers, nil)
	return kept(asked.ID, found), err
}

func peek(asked *command) (any, error) {
	first := int64(1)
	if asked.From != nil {
		first = *asked.From
	}
	options := &azservicebus.PeekMessagesOptions{FromSequenceNumber: &first}
	found, err := receivers[asked.ID].PeekMessages(soon(), asked.Count, options)
	return told(found), err
}

func settle(asked *command) (any, error) {
	receiver, found := receivers[asked.ID], held[fmt.Sprintf("%s/%d", asked.ID, asked.Number)]
	var properties map[string]any
	if asked.Properties != nil {
		properties = lines.Plain(asked.Properties)
	}
	switch asked.How {
	case "complete":
		return nil, receiver.CompleteMessage(soon(), found, nil)
	case "abandon":
		return nil, receiver.AbandonMessage(soon(), found, &azservicebus.AbandonMessageOptions{PropertiesToModify: properties})
	case "defer":
		return nil, receiver.DeferMessage(soon(), found, &azservicebus.DeferMessageOptions{PropertiesToModify: properties})
	}
	return nil, receiver.DeadLetterMessage(soon(), found, &azservicebus.DeadLetterOptions{
		Reason: asked.Reason, ErrorDescription: asked.Description, PropertiesToModify: properties,
	})
}

func renew(asked *command) (any, error) {
	found := held[fmt.Sprintf("%s/%d", asked.ID, asked.Number)]
	if err := receivers[asked.ID].(*azservicebus.Receiver).RenewMessageLock(soon(), found, nil); err != nil {
		return nil, err
	}
	return found.LockedUntil.UnixMilli(), nil
}

func shut(asked *command) (any, error) {
	defer delete(receivers, asked.ID)
	return nil, receivers[asked.ID].Close(soon())
}

func end(*command) (any, error) {
	return nil, client.Close(soon())
}

func main() {
	lines.ServeAs(command{Seconds: 20}, map[string]func(*command) (any, error){
		"connect": connect, "send": send, "schedule": schedule, "cancel": cancel, "open": open, "no_session": noSession,
		"state": state, "renew_session": renewSession, "receive": receive, "receive_deferred": receiveDeferred,
		"peek": peek, "settle": settle, "renew": renew, "shut": shut, "close": end,
	})
}
