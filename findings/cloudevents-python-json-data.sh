#!/bin/sh
# The Python SDK of CloudEvents reads JSON data of every kind, and writes only objects as JSON again in binary mode, over
# HTTP and AMQP alike: an array becomes Python's text of a list, `true` becomes `True`, a string loses its quotes, and the
# content type still says JSON. Give the SDK bytes that you made with `json.dumps`, or send in structured mode.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudevents==2.2.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

from cloudevents.core.bindings import amqp, http
from cloudevents.core.formats.json import JSONFormat

print("cloudevents", version("cloudevents"))
FORMAT = JSONFormat()
ATTRIBUTES = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}
for body, expected in (
    (b'{"sku":"a"}', b'{"sku": "a"}'),
    (b'[{"sku":"a"}]', b"[{'sku': 'a'}]"),
    (b"true", b"True"),
    (b'"paid"', b"paid"),
):
    properties = {f"cloudEvents_{name}": value for name, value in ATTRIBUTES.items()}
    event = amqp.from_binary(amqp.AMQPMessage({"content-type": "application/json"}, properties, body), FORMAT)
    assert event.get_data() == json.loads(body)
    over_amqp = amqp.to_binary(event, FORMAT)
    over_http = http.to_binary(event, FORMAT)
    structured = json.loads(amqp.to_structured(event, FORMAT).application_data)["data"]
    print(f"{body!r} is written as {over_amqp.application_data!r}; in structured mode it is {structured!r}")
    assert over_amqp.properties == {"content-type": "application/json"}
    assert over_amqp.application_data == over_http.body == expected
    assert structured == json.loads(body)
PYTHON
