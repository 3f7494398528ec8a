// amqp091-go, driven by lines of JSON.
package main

import (
	"context"
	"fmt"
	"time"

	"headgate/interop/lines"

	amqp "github.com/rabbitmq/amqp091-go"
)

var url string

func connect(command *lines.Command) (any, error) {
	url = fmt.Sprintf("amqp://%s:%s@%s:%d/", command.User, command.Password, command.Host, command.Port)
	return nil, nil
}

// closes opens and closes as many connections, each with a channel; it gives what went wrong.
func closes(command *lines.Command) (any, error) {
	wrong := []string{}
	for range command.Count {
		connection, err := amqp.Dial(url)
		if err != nil {
			return nil, err
		}
		if _, err := connection.Channel(); err != nil {
			return nil, err
		}
		if err := connection.Close(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong, nil
}

// serve answers one request of a stream with its body behind "re: ".
func serve(requests <-chan amqp.Delivery, channel *amqp.Channel) error {
	request := <-requests
	if err := request.Ack(false); err != nil {
		return err
	}
	return channel.PublishWithContext(context.Background(), "", request.ReplyTo, true, false, amqp.Publishing{
		CorrelationId: request.CorrelationId, Body: append([]byte("re: "), request.Body...),
	})
}

// request sends a request to a stream, answers it from another connection, and gives the reply.
func request(command *lines.Command) (any, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	other, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	answering, err := other.Channel()
	if err != nil {
		return nil, err
	}
	_, err = answering.QueueDeclare(command.Stream, true, false, false, false, amqp.Table{amqp.QueueTypeArg: "stream"})
	if err != nil {
		return nil, err
	}
	if err := answering.Qos(10, 0, false); err != nil {
		return nil, err
	}
	requests, err := answering.Consume(command.Stream, "", false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	replies, err := channel.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- serve(requests, answering) }()
	err = channel.PublishWithContext(context.Background(), "", command.Stream, false, false, amqp.Publishing{
		ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: command.ID, Body: []byte(command.Name),
	})
	if err != nil {
		return nil, err
	}
	if err := <-served; err != nil {
		return nil, err
	}
	select {
	case reply := <-replies:
		return map[string]string{"id": reply.CorrelationId, "body": string(reply.Body)}, nil
	case <-time.After(time.Duration(command.Seconds * float64(time.Second))):
		return nil, fmt.Errorf("no reply came")
	}
}

func main() {
	lines.Serve(map[string]lines.Handler{"connect": connect, "closes": closes, "request": request})
}
