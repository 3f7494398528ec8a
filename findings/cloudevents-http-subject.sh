#!/bin/sh
# CloudEvents over HTTP in binary mode, from the Python SDK to the JavaScript SDK and back. Python writes percent escapes,
# as the binding asks, and JavaScript neither reads nor writes them: "50% off" arrives as "50%25%20off", and a subject
# "a%20b" of JavaScript is "a b" in Python. JavaScript also cuts a time to milliseconds, and gives an event without a time
# one of its own when it reads it. A filter by subject or time then sees another event. Structured mode keeps the subject.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudevents==2.2.0
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund cloudevents@10.0.0 >/dev/null
cat > to_javascript.py <<'PYTHON'
import json
from datetime import datetime, timezone

from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

time = datetime(2026, 1, 2, 12, 0, 0, 123456, tzinfo=timezone.utc)
event = CloudEvent({"id": "1", "source": "/shop", "type": "paid", "subject": "50% off", "time": time})
binary, structured = (write(event, JSONFormat()) for write in (http.to_binary, http.to_structured))
print(json.dumps([{"headers": m.headers, "body": m.body.decode()} for m in (binary, structured)]))
PYTHON
cat > javascript.js <<'JAVASCRIPT'
const assert = require('assert');
const { CloudEvent, HTTP } = require('cloudevents');
const [binary, structured] = JSON.parse(require('fs').readFileSync(0)).map((message) => HTTP.toEvent(message));
console.log('cloudevents for JavaScript', require('./node_modules/cloudevents/package.json').version);
console.log('subject "50% off" is read as', binary.subject, '- in structured mode', structured.subject);
assert.deepStrictEqual([binary.subject, structured.subject], ['50%25%20off', '50% off']);
console.log('time …00.123456Z is read as', binary.time);
assert.strictEqual(binary.time, '2026-01-02T12:00:00.123Z');
const timeless = { 'ce-id': '1', 'ce-source': '/shop', 'ce-type': 'paid', 'ce-specversion': '1.0' };
assert(HTTP.toEvent({ headers: timeless, body: '' }).time);
const event = new CloudEvent({ id: '1', source: '/shop', type: 'paid', subject: 'a%20b' });
require('fs').writeFileSync('subject.txt', HTTP.binary(event).headers['ce-subject']);
JAVASCRIPT
cat > from_javascript.py <<'PYTHON'
from importlib.metadata import version

from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat

headers = {"ce-id": "1", "ce-source": "/shop", "ce-type": "paid", "ce-specversion": "1.0", "ce-subject": input()}
subject = http.from_binary(http.HTTPMessage(headers, b""), JSONFormat()).get_subject()
print("cloudevents for Python", version("cloudevents"), "- subject 'a%20b' of JavaScript is read as", repr(subject))
assert subject == "a b"
PYTHON
"$folder/venv/bin/python" to_javascript.py > messages.json
node javascript.js < messages.json
"$folder/venv/bin/python" from_javascript.py < subject.txt
