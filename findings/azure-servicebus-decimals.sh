#!/bin/sh
# azure-servicebus for Python sends a Decimal of an application property correctly, as decimal128, and cannot read one:
# decoding a message that has a decimal, even 1, ends in ValueError. Clients of .NET send their `decimal` as this type.
# To a Python receiver, send decimals as text.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check azure-servicebus==7.15.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from decimal import Decimal

import azure.servicebus
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

print("azure-servicebus", azure.servicebus.__version__)
for number in ("1", "12.50", "-3"):
    value = Decimal(number)
    message = ServiceBusMessage(b"", application_properties={"n": value})
    sent = bytes(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)))
    sign, digits, exponent = value.as_tuple()
    bits = sign << 127 | (exponent + 6176) << 113 | int("".join(map(str, digits)))
    assert b"\xa1\x01n\x94" + bits.to_bytes(16, "big") in sent
    try:
        decode_payload(memoryview(sent))
        raise SystemExit(f"{number} is read")
    except ValueError as error:
        print(f"{number} is sent as decimal128, and reading it ends in {type(error).__name__}: {error}")
PYTHON
