#!/bin/sh
# azure-servicebus for Python counts time to live in whole seconds: 1.5 s is sent as 1 s, and less than a second as 0.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check azure-servicebus==7.15.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from datetime import timedelta

import azure.servicebus
from azure.servicebus import ServiceBusMessage
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

print("azure-servicebus", azure.servicebus.__version__)
for given_ms, sent_ms in ((2000, 2000), (1500, 1000), (300, 0)):
    message = ServiceBusMessage(b"", time_to_live=timedelta(milliseconds=given_ms))
    ttl = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message).header.ttl
    print(f"time_to_live of {given_ms} ms is sent as ttl = {ttl} ms, and read from the message as {message.time_to_live}")
    assert ttl == sent_ms
PYTHON
