#!/bin/sh
# protobuf.js writes integers that a field cannot hold as other numbers, without an error: 2^31 as an int32 is −2^31, and
# `verify` finds nothing; a text of 2^63 as an int64 is −2^63. A BigInt given to `create` is 0, although `fromObject` takes
# one. `fromObject` leaves out what it cannot read: a text that is no number, the symbol of an enum that it does not know,
# and `order_total`, the name of a field as the .proto file has it (it wants `orderTotal`, unless `keepCase` is set).
# Give BigInts to `fromObject`, and check ranges and names before.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund protobufjs@8.8.1 long@5.3.2 >/dev/null
node - <<'JAVASCRIPT'
const assert = require('assert');
const protobuf = require('protobufjs');
console.log('protobufjs', require('protobufjs/package.json').version);
const SCHEMA = `syntax = "proto3"; enum State { NEW = 0; PAID = 1; }
  message Order { int32 count = 1; int64 id = 2; State state = 3; int32 order_total = 4; }`;
const Order = protobuf.parse(SCHEMA).root.lookupType('Order');
const read = (message) => {
  const options = { longs: String, enums: String, defaults: true };
  return Order.toObject(Order.decode(Order.encode(message).finish()), options);
};
const shown = (value) => (typeof value === 'bigint' ? `${value}n` : JSON.stringify(value));
for (const [how, field, value, expected] of [
  ['fromObject', 'count', 2 ** 31, -(2 ** 31)],
  ['fromObject', 'id', '9223372036854775808', '-9223372036854775808'],
  ['fromObject', 'id', 1234567890123456789n, '1234567890123456789'],
  ['create', 'id', 1234567890123456789n, '0'],
  ['fromObject', 'id', 'x', '0'],
  ['fromObject', 'state', 'REFUNDED', 'NEW'],
]) {
  const found = read(Order[how]({ [field]: value }))[field];
  console.log(`${how}({ ${field}: ${shown(value)} }) is read as ${shown(found)}`);
  assert.strictEqual(found, expected);
}
assert.strictEqual(Order.verify({ count: 2 ** 31 }), null);
const total = read(Order.fromObject({ order_total: 5 })).orderTotal;
console.log('fromObject({ order_total: 5 }) is read as', total);
assert.strictEqual(total, 0);
JAVASCRIPT
