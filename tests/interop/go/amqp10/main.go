// rabbitmq-amqp-go-client (AMQP 1.0), driven by lines of JSON.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headgate/interop/lines"

	"github.com/Azure/go-amqp"
	rabbitmq "github.com/rabbitmq/rabbitmq-amqp-go-client/pkg/rabbitmqamqp"
)

type subscribed struct {
	inbox    *lines.Inbox
	consumer *rabbitmq.Consumer
	stop     context.CancelFunc
	stopped  chan struct{}
}

var (
	environment *rabbitmq.Environment
	connection  *rabbitmq.AmqpConnection
	consumers   = map[string]*subscribed{}
)

func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Second)
}

func connect(command *lines.Command) (any, error) {
	address := fmt.Sprintf("amqp://%s:%s@%s:%d/", command.User, command.Password, command.Host, command.Port)
	environment = rabbitmq.NewEnvironment(address, nil)
	limited, cancel := soon()
	defer cancel()
	var err error
	connection, err = environment.NewConnection(limited)
	return nil, err
}

func described(info *rabbitmq.AmqpQueueInfo) map[string]any {
	return map[string]any{
		"name":      info.Name(),
		"type":      string(info.Type()),
		"durable":   info.IsDurable(),
		"arguments": info.Arguments(),
		"leader":    info.Leader(),
	}
}

func create(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	queue := &rabbitmq.StreamQueueSpecification{Name: command.Stream, Arguments: lines.Plain(command.Arguments)}
	info, err := connection.Management().DeclareQueue(limited, queue)
	if err != nil {
		return nil, err
	}
	return described(info), nil
}

func info(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	info, err := connection.Management().QueueInfo(limited, command.Stream)
	if err != nil {
		return nil, err
	}
	return described(info), nil
}

func remove(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	return nil, connection.Management().DeleteQueue(limited, command.Stream)
}

func bind(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	_, err := connection.Management().DeclareExchange(limited, &rabbitmq.DirectExchangeSpecification{Name: command.Exchange})
	if err != nil {
		return nil, err
	}
	return connection.Management().Bind(limited, &rabbitmq.ExchangeToQueueBindingSpecification{
		SourceExchange: command.Exchange, DestinationQueue: command.Stream, BindingKey: command.Key,
	})
}

func encoded(given lines.Message) *amqp.Message {
	message := amqp.NewMessage([]byte(given.Body))
	if given.FilterValue != nil {
		message.Annotations = amqp.Annotations{"x-stream-filter-value": *given.FilterValue}
	}
	if given.Priority != nil {
		message.Header = &amqp.MessageHeader{Priority: *given.Priority}
	}
	message.Properties = &amqp.MessageProperties{Subject: given.Subject, To: given.To}
	if given.UserID != nil {
		message.Properties.UserID = []byte(*given.UserID)
	}
	if given.CreationTime != nil {
		created := time.UnixMilli(*given.CreationTime)
		message.Properties.CreationTime = &created
	}
	message.ApplicationProperties = lines.Plain(given.Properties)
	return message
}

func outcome(state rabbitmq.DeliveryState) string {
	switch state.(type) {
	case *rabbitmq.StateAccepted:
		return "accepted"
	case *rabbitmq.StateReleased:
		return "released"
	case *rabbitmq.StateRejected:
		return "rejected"
	}
	return fmt.Sprintf("%T", state)
}

func publish(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	var target rabbitmq.ITargetAddress
	switch {
	case command.Exchange != "":
		target = &rabbitmq.ExchangeAddress{Exchange: command.Exchange, Key: command.Key}
	case command.Stream != "":
		target = &rabbitmq.QueueAddress{Queue: command.Stream}
	}
	publisher, err := connection.NewPublisher(limited, target, nil)
	if err != nil {
		return nil, err
	}
	defer publisher.Close(limited)
	outcomes := []string{}
	for _, given := range command.Messages {
		result, err := publisher.Publish(limited, encoded(given))
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, outcome(result.Outcome))
	}
	return map[string]any{"outcomes": outcomes}, nil
}

func start(offset any) rabbitmq.IOffsetSpecification {
	switch given := offset.(type) {
	case float64:
		return &rabbitmq.OffsetValue{Offset: uint64(given)}
	case string:
		switch given {
		case "first":
			return &rabbitmq.OffsetFirst{}
		case "last":
			return &rabbitmq.OffsetLast{}
		}
	}
	return &rabbitmq.OffsetNext{}
}

func filterOf(command *lines.Command) *rabbitmq.StreamFilterOptions {
	filter := &rabbitmq.StreamFilterOptions{
		Values:          command.FilterValues,
		MatchUnfiltered: command.MatchUnfiltered,
		SQL:             command.SQL,
	}
	if command.ApplicationProperties != nil {
		filter.ApplicationProperties = lines.Plain(command.ApplicationProperties)
	}
	if command.MessageProperties != nil {
		filter.Properties = &amqp.MessageProperties{}
		if subject, given := command.MessageProperties["subject"]; given {
			filter.Properties.Subject = &subject
		}
		if user, given := command.MessageProperties["user_id"]; given {
			filter.Properties.UserID = []byte(user)
		}
	}
	return filter
}

func subscribe(command *lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	consumer, err := connection.NewConsumer(limited, command.Stream, &rabbitmq.StreamConsumerOptions{
		InitialCredits:      command.Credit,
		Offset:              start(command.Offset),
		StreamFilterOptions: filterOf(command),
	})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	entry := &subscribed{lines.NewInbox(), consumer, stop, make(chan struct{})}
	consumers[command.ID] = entry
	go entry.receive(running)
	return nil, nil
}

func (entry *subscribed) receive(running context.Context) {
	defer close(entry.stopped)
	for {
		delivery, err := entry.consumer.Receive(running)
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			entry.inbox.Close(err.Error())
			return
		}
		message := delivery.Message()
		received := lines.Received{
			Body:        string(message.GetData()),
			Offset:      message.Annotations["x-stream-offset"].(int64),
			FilterValue: message.Annotations["x-stream-filter-value"],
			Properties:  message.ApplicationProperties,
		}
		if message.Properties != nil {
			received.Subject = message.Properties.Subject
		}
		entry.inbox.Put(received)
		if err := delivery.Accept(running); err != nil && !errors.Is(err, context.Canceled) {
			entry.inbox.Close(err.Error())
			return
		}
	}
}

func take(command *lines.Command) (any, error) {
	return consumers[command.ID].inbox.Take(command)
}

func end(command *lines.Command) (any, error) {
	return consumers[command.ID].inbox.End(command)
}

func unsubscribe(command *lines.Command) (any, error) {
	entry := consumers[command.ID]
	delete(consumers, command.ID)
	entry.stop()
	<-entry.stopped
	limited, cancel := soon()
	defer cancel()
	return nil, entry.consumer.Close(limited)
}

func closeAll(*lines.Command) (any, error) {
	limited, cancel := soon()
	defer cancel()
	return nil, environment.CloseConnections(limited)
}

func main() {
	lines.Serve(map[string]lines.Handler{
		"connect":     connect,
		"create":      create,
		"info":        info,
		"delete":      remove,
		"bind":        bind,
		"publish":     publish,
		"subscribe":   subscribe,
		"take":        take,
		"end":         end,
		"unsubscribe": unsubscribe,
		"close":       closeAll,
	})
}
