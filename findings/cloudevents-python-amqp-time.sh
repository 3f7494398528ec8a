#!/bin/sh
# The AMQP binding of CloudEvents' Python SDK makes a plain integer of the attribute `time`. Clients cannot see that it is
# a time: rstream writes a long, not a timestamp; azure-servicebus refuses it, although the SDK names this client.
# The SDK also adds a time to an event that has none, when it reads it: every reader's copy has another one.
# Put the time into the client's own type before sending: a datetime, or `proton.timestamp(ms)`.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudevents==2.2.0 azure-servicebus==7.15.0 rstream==1.1.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from datetime import datetime, timezone
from importlib.metadata import version

import rstream
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from cloudevents.core.bindings import amqp
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

print(*(f"{name} {version(name)}" for name in ("cloudevents", "azure-servicebus", "rstream")))
FORMAT = JSONFormat()
TIME = datetime(2026, 1, 2, tzinfo=timezone.utc)
MILLISECONDS = int(TIME.timestamp()) * 1000
event = CloudEvent({"id": "1", "source": "/shop", "type": "order.paid", "time": TIME})
properties = amqp.to_binary(event, FORMAT).application_properties
print("to_binary:", properties)
assert type(properties["cloudEvents_time"]) is int

written = bytes(rstream.AMQPMessage(body=b"", application_properties=properties))
as_long, as_timestamp = (bytes([code]) + MILLISECONDS.to_bytes(8, "big") for code in (0x81, 0x83))
print("rstream writes a long:", as_long in written, "- a timestamp:", as_timestamp in written)
assert as_long in written and as_timestamp not in written
message = ServiceBusMessage(b"", application_properties=properties)
try:
    encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message))
    raise SystemExit("azure-servicebus sends it")
except ValueError as error:
    print("azure-servicebus:", type(error).__name__, error)

timeless = {name: value for name, value in properties.items() if name != "cloudEvents_time"}
read = amqp.from_binary(amqp.AMQPMessage({}, timeless, b""), FORMAT)
print("an event without a time is read with", read.get_time())
assert read.get_time() is not None
PYTHON
