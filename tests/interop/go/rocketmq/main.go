// github.com/apache/rocketmq-clients/golang/v5, driven by lines of JSON.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"

	"headgate/interop/lines"
)

var (
	config    rocketmq.Config
	producers = map[string]rocketmq.Producer{}
	simple    = map[string]rocketmq.SimpleConsumer{}
	open      = map[string]func() error{}
	inboxes   = map[string]*lines.Inbox{}
	mutex     sync.Mutex
	numbers   int64
	held      = map[int64]*rocketmq.MessageView{}
)

func connect(command *lines.Command) (any, error) {
	rocketmq.EnableSsl = command.TLS
	config = rocketmq.Config{
		Endpoint:    command.Host + ":" + strconv.Itoa(command.Port),
		Credentials: &credentials.SessionCredentials{},
	}
	if len(command.Keys) == 2 {
		config.Credentials = &credentials.SessionCredentials{AccessKey: command.Keys[0], AccessSecret: command.Keys[1]}
	}
	return nil, nil
}

// A producer of this library waits for the settings of its topics: without one it never starts.
func producerOf(topic string) (rocketmq.Producer, error) {
	if producers[topic] == nil {
		producer, err := rocketmq.NewProducer(&config, rocketmq.WithTopics(topic))
		if err != nil {
			return nil, err
		}
		if err := producer.Start(); err != nil {
			return nil, err
		}
		producers[topic] = producer
		open["producer of "+topic] = producer.GracefulStop
	}
	return producers[topic], nil
}

func send(command *lines.Command) (any, error) {
	producer, err := producerOf(command.Topic)
	if err != nil {
		return nil, err
	}
	receipts := []map[string]any{}
	for _, given := range command.Messages {
		message := &rocketmq.Message{Topic: command.Topic, Body: given.Bytes()}
		if given.Tag != "" {
			message.SetTag(given.Tag)
		}
		if len(given.Keys) > 0 {
			message.SetKeys(given.Keys...)
		}
		if given.Group != "" {
			message.SetMessageGroup(given.Group)
		}
		if given.DueMS > 0 {
			message.SetDelayTimestamp(time.UnixMilli(given.DueMS))
		}
		for name, value := range given.Properties {
			message.AddProperty(name, value.(string))
		}
		receipt, err := producer.Send(context.Background(), message)
		if err != nil {
			return nil, err
		}
		receipts = append(receipts, map[string]any{"message_id": receipt[0].MessageID, "recall": nil})
	}
	return receipts, nil
}

func told(message *rocketmq.MessageView) lines.Received {
	mutex.Lock()
	numbers++
	number := numbers
	held[number] = message
	mutex.Unlock()
	properties := map[string]any{}
	for name, value := range message.GetProperties() {
		properties[name] = value
	}
	keys := append([]string{}, message.GetKeys()...)
	sort.Strings(keys)
	return lines.Received{
		Number:     number,
		Body:       lines.Text(message.GetBody()),
		Topic:      message.GetTopic(),
		MessageID:  message.GetMessageId(),
		Tag:        message.GetTag(),
		Keys:       keys,
		Properties: properties,
		Group:      message.GetMessageGroup(),
		Attempt:    message.GetDeliveryAttempt(),
		Offset:     message.GetOffset(),
	}
}

func expressions(command *lines.Command) map[string]*rocketmq.FilterExpression {
	result := map[string]*rocketmq.FilterExpression{}
	for topic, how := range command.Topics {
		if sql, isSQL := how["sql"]; isSQL {
			result[topic] = rocketmq.NewFilterExpressionWithType(sql, rocketmq.SQL92)
		} else if tag, isTag := how["tag"]; isTag {
			result[topic] = rocketmq.NewFilterExpression(tag)
		} else {
			result[topic] = rocketmq.SUB_ALL
		}
	}
	return result
}

func ofGroup(command *lines.Command) *rocketmq.Config {
	copied := config
	copied.ConsumerGroup = command.Group
	return &copied
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}

func openSimple(command *lines.Command) (any, error) {
	if command.WaitSeconds == 0 {
		command.WaitSeconds = 10
	}
	consumer, err := rocketmq.NewSimpleConsumer(
		ofGroup(command),
		rocketmq.WithSimpleAwaitDuration(seconds(command.WaitSeconds)),
		rocketmq.WithSimpleSubscriptionExpressions(expressions(command)),
	)
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	simple[command.ID] = consumer
	open[command.ID] = consumer.GracefulStop
	return nil, nil
}

func receive(command *lines.Command) (any, error) {
	if command.Count == 0 {
		command.Count = 32
	}
	if command.InvisibleSeconds == 0 {
		command.InvisibleSeconds = 30
	}
	result := []lines.Received{}
	messages, err := simple[command.ID].Receive(context.Background(), command.Count, seconds(command.InvisibleSeconds))
	if err != nil {
		// That there is nothing is an error to this client.
		var status *rocketmq.ErrRpcStatus
		if errors.As(err, &status) && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
			return result, nil
		}
		return nil, err
	}
	for _, message := range messages {
		result = append(result, told(message))
	}
	return result, nil
}

func ack(command *lines.Command) (any, error) {
	for _, number := range command.Numbers {
		if err := simple[command.ID].Ack(context.Background(), held[number]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func changeInvisible(command *lines.Command) (any, error) {
	return nil, simple[command.ID].ChangeInvisibleDuration(held[command.Number], seconds(command.Seconds))
}

func push(command *lines.Command) (any, error) {
	inbox := lines.NewInbox()
	inboxes[command.ID] = inbox
	failures := lines.NewFailures(command.Fails)
	consumer, err := rocketmq.NewPushConsumer(
		ofGroup(command),
		rocketmq.WithPushAwaitDuration(5*time.Second),
		rocketmq.WithPushSubscriptionExpressions(expressions(command)),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
			Consume: func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
				found := told(message)
				fails := failures.Next(found.Body)
				inbox.Put(found)
				if fails {
					return rocketmq.FAILURE
				}
				return rocketmq.SUCCESS
			},
		}),
	)
	if err != nil {
		return nil, err
	}
	// It looks for its settings once a second: others can be started meanwhile.
	go func() {
		if err := consumer.Start(); err != nil {
			inbox.Close(err.Error())
		}
	}()
	open[command.ID] = consumer.GracefulStop
	return nil, nil
}

func main() {
	lines.Serve(map[string]lines.Handler{
		"connect":          connect,
		"send":             send,
		"open":             openSimple,
		"receive":          receive,
		"ack":              ack,
		"change_invisible": changeInvisible,
		"push":             push,
		"take":             func(command *lines.Command) (any, error) { return inboxes[command.ID].Take(command) },
		"shut": func(command *lines.Command) (any, error) {
			stop := open[command.ID]
			if stop == nil {
				return nil, fmt.Errorf("no consumer %s", command.ID)
			}
			delete(open, command.ID)
			return nil, stop()
		},
		"close": func(*lines.Command) (any, error) {
			for _, stop := range open {
				if err := stop(); err != nil {
					return nil, err
				}
			}
			open = map[string]func() error{}
			return nil, nil
		},
	})
}
