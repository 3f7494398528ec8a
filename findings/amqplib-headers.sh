#!/bin/sh
# amqplib, the client of AMQP 0.9.1 for Node.js, and values of headers: a Date is sent as an empty table, without an error.
# An integer of 64 bits, such as an id, is read as the nearest double. A BigInt is refused with an error.
# Send times as `{ '!': 'timestamp', value: seconds }` or as text, and ids of 64 bits as text.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund amqplib@2.3.1 >/dev/null
node - <<'JAVASCRIPT'
const assert = require('assert');
const path = require('path');
const folder = path.join(process.cwd(), 'node_modules', 'amqplib');
const codec = require(path.join(folder, 'lib', 'codec.js'));
console.log('amqplib', require(path.join(folder, 'package.json')).version);
const written = (value) => {
  const buffer = Buffer.alloc(100);
  return buffer.subarray(6, codec.encodeTable(buffer, { a: value }, 0));
};
const read = (hex) => codec.decodeFields(Buffer.from(`0161${hex}`, 'hex')).a;

const due = written(new Date('2026-01-02T12:00:00Z'));
console.log('a Date is sent as', due);
assert.strictEqual(due.toString('hex'), '4600000000');
const seconds = Buffer.from('54000000006957b340', 'hex');
console.log("{ '!': 'timestamp', … } is sent as", written({ '!': 'timestamp', value: Date.UTC(2026, 0, 2, 12) / 1000 }));
assert(written({ '!': 'timestamp', value: Date.UTC(2026, 0, 2, 12) / 1000 }).equals(seconds));
const id = read('6c112210f47de98115');
console.log('1234567890123456789 of type long-long is read as', BigInt(id));
assert.strictEqual(BigInt(id), 1234567890123456768n);
assert.throws(() => written(1234567890123456789n), TypeError);
JAVASCRIPT
