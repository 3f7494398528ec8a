// github.com/apache/rocketmq-client-go/v2 (remoting), driven by lines of JSON.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"headgate/interop/lines"
)

var (
	names     primitive.NamesrvAddr
	keys      primitive.Credentials
	sender    rocketmq.Producer
	open      = map[string]func() error{}
	inboxes   = map[string]*lines.Inbox{}
	instances int
)

func connect(command *lines.Command) (any, error) {
	// This client takes numbers only.
	addresses, err := net.LookupHost(command.Host)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		if strings.Contains(address, ".") {
			names = primitive.NamesrvAddr{address + ":" + strconv.Itoa(command.Port)}
		}
	}
	if len(command.Keys) == 2 {
		keys = primitive.Credentials{AccessKey: command.Keys[0], SecretKey: command.Keys[1]}
	}
	return nil, nil
}

func instance() string {
	instances++
	return fmt.Sprintf("%d-%d", os.Getpid(), instances)
}

func send(command *lines.Command) (any, error) {
	if sender == nil {
		started, err := rocketmq.NewProducer(
			producer.WithNameServer(names),
			producer.WithGroupName("producers"),
			producer.WithInstanceName(instance()),
			producer.WithCredentials(keys),
		)
		if err != nil {
			return nil, err
		}
		if err := started.Start(); err != nil {
			return nil, err
		}
		sender = started
		open["producer"] = started.Shutdown
	}
	var messages []*primitive.Message
	for _, given := range command.Messages {
		message := primitive.NewMessage(command.Topic, given.Bytes())
		if given.Tag != "" {
			message.WithTag(given.Tag)
		}
		if len(given.Keys) > 0 {
			message.WithKeys(given.Keys)
		}
		if given.Level > 0 {
			message.WithDelayTimeLevel(given.Level)
		}
		for name, value := range given.Properties {
			message.WithProperty(name, value.(string))
		}
		messages = append(messages, message)
	}
	told := func(result *primitive.SendResult) map[string]any {
		return map[string]any{
			"status":     result.Status,
			"message_id": result.MsgID,
			"offset_id":  result.OffsetMsgID,
			"queue":      result.MessageQueue.QueueId,
			"offset":     result.QueueOffset,
		}
	}
	if command.How == "batch" {
		result, err := sender.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return told(result), nil
	}
	results := []map[string]any{}
	for _, message := range messages {
		if command.How == "oneway" {
			if err := sender.SendOneWay(context.Background(), message); err != nil {
				return nil, err
			}
			continue
		}
		result, err := sender.SendSync(context.Background(), message)
		if err != nil {
			return nil, err
		}
		results = append(results, told(result))
	}
	return results, nil
}

// What a message carries beside the properties that its sender gave it.
var system = map[string]bool{
	"KEYS": true, "TAGS": true, "WAIT": true, "DELAY": true, "RETRY_TOPIC": true, "REAL_TOPIC": true, "REAL_QID": true,
	"MIN_OFFSET": true, "MAX_OFFSET": true, "ORIGIN_MESSAGE_ID": true, "MSG_REGION": true, "TRACE_ON": true,
	"UNIQ_KEY": true, "CLUSTER": true, "CONSUME_START_TIME": true, "PGROUP": true, "RECONSUME_TIME": true,
	"__BORNHOST": true, "MAX_RECONSUME_TIMES": true,
}

func told(message *primitive.MessageExt) lines.Received {
	properties := map[string]any{}
	for name, value := range message.GetProperties() {
		if !system[name] {
			properties[name] = value
		}
	}
	found := lines.Received{
		Body:       lines.Text(message.Body),
		Topic:      message.Topic,
		MessageID:  message.MsgId,
		Keys:       strings.Fields(message.GetKeys()),
		Properties: properties,
		Attempt:    message.ReconsumeTimes + 1,
		Queue:      message.Queue.QueueId,
		Offset:     message.QueueOffset,
	}
	sort.Strings(found.Keys)
	if tag := message.GetTags(); tag != "" {
		found.Tag = &tag
	}
	return found
}

func push(command *lines.Command) (any, error) {
	inbox := lines.NewInbox()
	inboxes[command.ID] = inbox
	failures := lines.NewFailures(command.Fails)
	options := []consumer.Option{
		consumer.WithNameServer(names),
		consumer.WithGroupName(command.Group),
		consumer.WithInstance(instance()),
		consumer.WithCredentials(keys),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(command.Orderly),
	}
	if command.Broadcasting {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if command.MaxRetries > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(command.MaxRetries))
	}
	started, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	for topic, how := range command.Topics {
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
		if sql, isSQL := how["sql"]; isSQL {
			selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
		} else if tag, isTag := how["tag"]; isTag {
			selector.Expression = tag
		}
		err := started.Subscribe(topic, selector, func(listening context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if concurrently, isConcurrent := primitive.GetConcurrentlyCtx(listening); isConcurrent {
				concurrently.DelayLevelWhenNextConsume = 1
			}
			fails := false
			for _, message := range messages {
				found := told(message)
				fails = failures.Next(found.Body) || fails
				inbox.Put(found)
			}
			if fails && command.Orderly {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			if fails {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := started.Start(); err != nil {
		return nil, err
	}
	open[command.ID] = started.Shutdown
	return nil, nil
}

func main() {
	lines.Serve(map[string]lines.Handler{
		"connect": connect,
		"send":    send,
		"push":    push,
		"take":    func(command *lines.Command) (any, error) { return inboxes[command.ID].Take(command) },
		"shut": func(command *lines.Command) (any, error) {
			stop := open[command.ID]
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
