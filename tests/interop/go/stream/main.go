// rabbitmq-stream-go-client, driven by lines of JSON.
package main

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"headgate/interop/lines"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

type subscribed struct {
	inbox    *lines.Inbox
	consumer *stream.Consumer
	closed   func() error
}

var (
	environment *stream.Environment
	consumers   = map[string]*subscribed{}
	activeMutex sync.Mutex
	activeOf    = map[string]map[string]bool{}
)

func connect(command *lines.Command) (any, error) {
	var err error
	environment, err = stream.NewEnvironment(stream.NewEnvironmentOptions().
		SetHost(command.Host).SetPort(command.Port).SetUser(command.User).SetPassword(command.Password))
	return nil, err
}

func create(command *lines.Command) (any, error) {
	options := stream.NewStreamOptions()
	if size, given := command.Arguments["stream-max-segment-size-bytes"].(float64); given {
		options.SetMaxSegmentSizeBytes(stream.ByteCapacity{}.B(int64(size)))
	}
	if size, given := command.Arguments["max-length-bytes"].(float64); given {
		options.SetMaxLengthBytes(stream.ByteCapacity{}.B(int64(size)))
	}
	return nil, environment.DeclareStream(command.Stream, options)
}

func encoded(given lines.Message) *amqp.AMQP10 {
	result := amqp.NewMessage([]byte(given.Body))
	if given.ID != nil {
		result.SetPublishingId(*given.ID)
	}
	if given.Subject != nil || given.UserID != nil {
		result.Properties = &amqp.MessageProperties{}
		if given.Subject != nil {
			result.Properties.Subject = *given.Subject
		}
		if given.UserID != nil {
			result.Properties.UserID = []byte(*given.UserID)
		}
	}
	result.ApplicationProperties = lines.Plain(given.Properties)
	if given.Key != "" {
		result.ApplicationProperties["key"] = given.Key
	}
	return result
}

func compression(name string) stream.Compression {
	switch name {
	case "gzip":
		return stream.Compression{}.Gzip()
	case "snappy":
		return stream.Compression{}.Snappy()
	case "lz4":
		return stream.Compression{}.Lz4()
	case "zstd":
		return stream.Compression{}.Zstd()
	}
	return stream.Compression{}.None()
}

// counted waits until so many messages are confirmed or refused.
func counted(expected int, statuses func() []*stream.ConfirmationStatus) (any, error) {
	confirmed, refused := 0, []any{}
	for confirmed+len(refused) < expected {
		batch := statuses()
		if batch == nil {
			return nil, fmt.Errorf("%d of %d messages were confirmed", confirmed, expected)
		}
		for _, status := range batch {
			if status.IsConfirmed() {
				confirmed += 1
			} else {
				refused = append(refused, []any{string(status.GetMessage().GetData()[0]), status.GetErrorCode()})
			}
		}
	}
	return map[string]any{"confirmed": confirmed, "refused": refused}, nil
}

func publish(command *lines.Command) (any, error) {
	values := map[string]string{}
	for _, given := range command.Messages {
		if given.FilterValue != nil {
			values[given.Body] = *given.FilterValue
		}
	}
	options := stream.NewProducerOptions()
	if command.Name != "" {
		options.SetProducerName(command.Name)
	}
	if len(values) > 0 {
		options.SetFilter(stream.NewProducerFilter(func(message message.StreamMessage) string {
			return values[string(message.GetData()[0])]
		}))
	}
	if command.SubBatch > 0 {
		options.SetSubEntrySize(command.SubBatch).SetCompression(compression(command.Compression))
	}
	producer, err := environment.NewProducer(command.Stream, options)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	confirms := producer.NotifyPublishConfirmation()
	var messages []message.StreamMessage
	for _, given := range command.Messages {
		messages = append(messages, encoded(given))
	}
	if err := producer.BatchSend(messages); err != nil {
		return nil, err
	}
	deadline := time.After(20 * time.Second)
	return counted(len(messages), func() []*stream.ConfirmationStatus {
		select {
		case batch := <-confirms:
			return batch
		case <-deadline:
			return nil
		}
	})
}

func lastID(command *lines.Command) (any, error) {
	return environment.QuerySequence(command.Name, command.Stream)
}

func start(offset any) stream.OffsetSpecification {
	switch given := offset.(type) {
	case float64:
		return stream.OffsetSpecification{}.Offset(int64(given))
	case string:
		switch given {
		case "first":
			return stream.OffsetSpecification{}.First()
		case "last":
			return stream.OffsetSpecification{}.Last()
		}
	}
	return stream.OffsetSpecification{}.Next()
}

func handler(inbox *lines.Inbox) stream.MessagesHandler {
	return func(context stream.ConsumerContext, message *amqp.Message) {
		received := lines.Received{
			Body:       string(message.GetData()),
			Offset:     context.Consumer.GetOffset(),
			Stream:     context.Consumer.GetStreamName(),
			Properties: message.ApplicationProperties,
		}
		if message.Properties != nil && message.Properties.Subject != "" {
			received.Subject = &message.Properties.Subject
		}
		inbox.Put(received)
	}
}

func filterOf(command *lines.Command) *stream.ConsumerFilter {
	return stream.NewConsumerFilter(command.FilterValues, command.MatchUnfiltered, func(message *amqp.Message) bool {
		post := command.PostFilter
		return post == nil || message.ApplicationProperties[post.Property] == post.Value
	})
}

func subscribe(command *lines.Command) (any, error) {
	inbox := lines.NewInbox()
	activeStreams := map[string]bool{}
	activeOf[command.ID] = activeStreams
	active := stream.NewSingleActiveConsumer(func(name string, isActive bool) stream.OffsetSpecification {
		activeMutex.Lock()
		defer activeMutex.Unlock()
		activeStreams[name] = isActive
		return start(command.Offset)
	})
	if command.SuperStream != "" {
		options := stream.NewSuperStreamConsumerOptions().SetOffset(start(command.Offset))
		if command.Name != "" {
			options.SetConsumerName(command.Name)
		}
		if command.SingleActive {
			options.SetSingleActiveConsumer(active)
		}
		consumer, err := environment.NewSuperStreamConsumer(command.SuperStream, handler(inbox), options)
		if err != nil {
			return nil, err
		}
		consumers[command.ID] = &subscribed{inbox: inbox, closed: consumer.Close}
		return nil, nil
	}
	options := stream.NewConsumerOptions().SetOffset(start(command.Offset))
	if command.Name != "" {
		options.SetConsumerName(command.Name).SetManualCommit()
	}
	if command.SingleActive {
		options.SetSingleActiveConsumer(active)
	}
	if command.FilterValues != nil {
		options.SetFilter(filterOf(command))
	}
	consumer, err := environment.NewConsumer(command.Stream, handler(inbox), options)
	if err != nil {
		return nil, err
	}
	closed := consumer.NotifyClose()
	go func() {
		event := <-closed
		inbox.Close(event.Reason)
	}()
	consumers[command.ID] = &subscribed{inbox, consumer, consumer.Close}
	return nil, nil
}

// active gives the streams that a single active consumer reads now.
func active(command *lines.Command) (any, error) {
	activeMutex.Lock()
	defer activeMutex.Unlock()
	names := []string{}
	for name, isActive := range activeOf[command.ID] {
		if isActive {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

func take(command *lines.Command) (any, error) {
	return consumers[command.ID].inbox.Take(command)
}

func end(command *lines.Command) (any, error) {
	return consumers[command.ID].inbox.End(command)
}

func unsubscribe(command *lines.Command) (any, error) {
	consumer := consumers[command.ID]
	delete(consumers, command.ID)
	return nil, consumer.closed()
}

func store(command *lines.Command) (any, error) {
	return nil, consumers[command.ID].consumer.StoreCustomOffset(int64(command.Offset.(float64)))
}

func stored(command *lines.Command) (any, error) {
	return consumers[command.ID].consumer.QueryOffset()
}

func stats(command *lines.Command) (any, error) {
	stats, err := environment.StreamStats(command.Stream)
	if err != nil {
		return nil, err
	}
	first, err := stats.FirstOffset()
	if err != nil {
		return nil, err
	}
	committed, err := stats.CommittedChunkId()
	return map[string]any{"firstChunkId": first, "committedChunkId": committed}, err
}

func createSuper(command *lines.Command) (any, error) {
	if command.BindingKeys != nil {
		return nil, environment.DeclareSuperStream(command.Stream, stream.NewBindingsOptions(command.BindingKeys))
	}
	return nil, environment.DeclareSuperStream(command.Stream, stream.NewPartitionsOptions(command.Partitions))
}

func publishSuper(command *lines.Command) (any, error) {
	key := func(message message.StreamMessage) string {
		return message.GetApplicationProperties()["key"].(string)
	}
	var routing stream.RoutingStrategy = stream.NewHashRoutingStrategy(key)
	if command.Routing == "key" {
		routing = stream.NewKeyRoutingStrategy(key)
	}
	producer, err := environment.NewSuperStreamProducer(command.Stream, stream.NewSuperStreamProducerOptions(routing))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	confirms := producer.NotifyPublishConfirmation(len(command.Messages))
	for _, given := range command.Messages {
		if err := producer.Send(encoded(given)); err != nil {
			return nil, err
		}
	}
	deadline := time.After(20 * time.Second)
	return counted(len(command.Messages), func() []*stream.ConfirmationStatus {
		select {
		case batch := <-confirms:
			return batch.ConfirmationStatus
		case <-deadline:
			return nil
		}
	})
}

func main() {
	lines.Serve(map[string]lines.Handler{
		"connect":      connect,
		"create":       create,
		"delete":       func(command *lines.Command) (any, error) { return nil, environment.DeleteStream(command.Stream) },
		"exists":       func(command *lines.Command) (any, error) { return environment.StreamExists(command.Stream) },
		"publish":      publish,
		"last_id":      lastID,
		"subscribe":    subscribe,
		"take":         take,
		"end":          end,
		"unsubscribe":  unsubscribe,
		"active":       active,
		"store":        store,
		"stored":       stored,
		"stats":        stats,
		"create_super": createSuper,
		"delete_super": func(command *lines.Command) (any, error) {
			return nil, environment.DeleteSuperStream(command.Stream)
		},
		"partitions": func(command *lines.Command) (any, error) { return environment.QueryPartitions(command.Stream) },
		"route": func(command *lines.Command) (any, error) {
			return environment.QueryRoute(command.Stream, command.Key)
		},
		"publish_super": publishSuper,
		"close":         func(*lines.Command) (any, error) { return nil, environment.Close() },
	})
}
