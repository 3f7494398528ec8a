#!/bin/sh
# azure-servicebus for Python sends a datetime of an application property as an AMQP timestamp, and reads a timestamp as
# a whole number of milliseconds. A program that forwards the properties of a message that it received fails with
# ValueError, because the number has more than 32 bits. Turn such numbers back into datetime before sending.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check azure-servicebus==7.15.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from datetime import datetime, timezone

import azure.servicebus
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

print("azure-servicebus", azure.servicebus.__version__)


def encoded(properties: dict) -> bytes:
    message = ServiceBusMessage(b"", application_properties=properties)
    return bytes(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)))


due = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=timezone.utc)
milliseconds = int(due.timestamp()) * 1000 + 123
sent = encoded({"due": due})
assert b"\xa1\x03due\x83" + milliseconds.to_bytes(8, "big") in sent
received = ServiceBusReceivedMessage(decode_payload(memoryview(sent)), receiver=None)
print(due, "is sent as a timestamp, and read as", received.application_properties)
assert received.application_properties == {b"due": milliseconds}
try:
    encoded(received.application_properties)
    raise SystemExit("the properties are sent on")
except ValueError as error:
    print("sending them on:", type(error).__name__, error)
PYTHON
