#!/bin/sh
# azure-servicebus for Python refuses integer application properties beyond 32 bits: it has no long for them.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check azure-servicebus==7.15.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import azure.servicebus
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

print("azure-servicebus", azure.servicebus.__version__)


def encoded(number: int) -> bytes:
    message = ServiceBusMessage(b"", application_properties={"n": number})
    return bytes(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)))


assert b"\xa1\x01nq\x7f\xff\xff\xff" in encoded(2**31 - 1)
print(2**31 - 1, "is sent as an int")
for number in (2**31, -(2**31) - 1):
    try:
        encoded(number)
        raise SystemExit(f"{number} is taken")
    except ValueError as error:
        print(number, "ends in", type(error).__name__, error)
PYTHON
