#!/bin/sh
# Watermill's client for RabbitMQ (watermill-amqp 3.0.2) cannot read a message that has a header which is no text, as
# every message of a RabbitMQ stream (x-stream-offset) and every retry of a quorum queue (x-delivery-count) has. Its
# subscriber rejects such a message and logs it; the application is never given it. No broker is needed to see it.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MODULE'
module finding

go 1.23

require (
	github.com/ThreeDotsLabs/watermill-amqp/v3 v3.0.2
	github.com/rabbitmq/amqp091-go v1.10.0
)
MODULE
cat > main.go <<'PROGRAM'
package main

import (
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

func read(headers amqp091.Table) error {
	_, err := amqp.DefaultMarshaler{}.Unmarshal(amqp091.Delivery{Headers: headers, Body: []byte("m")})
	return err
}

func main() {
	text := read(amqp091.Table{"region": "EMEA"})
	offset := read(amqp091.Table{"x-stream-offset": int64(0)})
	retry := read(amqp091.Table{"x-delivery-count": int64(1)})
	fmt.Println("watermill-amqp 3.0.2; text header:", text, "| stream offset:", offset, "| delivery count:", retry)
	if text != nil || offset == nil || retry == nil {
		os.Exit(1)
	}
}
PROGRAM
go mod tidy > tidy.log 2>&1 || { cat tidy.log; exit 1; }
go run .
