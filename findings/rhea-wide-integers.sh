#!/bin/sh
# rhea and integers that a JavaScript number cannot hold, such as ids of 64 bits: it reads a long from 2^53 + 2^32 on as a
# Buffer, and one just above 2^53 as its neighbour. Forwarded, the Buffer is a binary: the property changes its type.
# A BigInt, the natural type for such an id, is sent as an empty map. A uuid becomes a binary in the same way.
# Send with `rhea.types.wrap_long(buffer)`, or send such ids as text.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund rhea@3.0.5 >/dev/null
node - <<'JAVASCRIPT'
const assert = require('assert');
const { message, types } = require('rhea');
console.log('rhea', require('rhea/package.json').version);
const section = (value) => Buffer.concat([Buffer.from([0, 0x53, 0x74, 0xc1, 4 + value.length, 2, 0xa1, 1, 0x61]), value]);
const long = (number) => { const b = Buffer.alloc(9, 0x81); b.writeBigInt64BE(number, 1); return b; };
const read = (value) => message.decode(section(value)).application_properties.a;
const written = (value) => {
  const bytes = message.encode({ application_properties: { a: value } });
  return bytes.subarray(bytes.indexOf('a101' + '61', 'hex') + 3);
};

const id = long(1234567890123456789n);
const found = read(id);
console.log('long 1234567890123456789 is read as', found, 'and sent on as', written(found));
assert(Buffer.isBuffer(found) && written(found)[0] === 0xa0);
console.log('long 9007199254740993 is read as', read(long(9007199254740993n)));
assert.strictEqual(read(long(9007199254740993n)), 9007199254740992);
const bigint = written(1234567890123456789n);
console.log('BigInt 1234567890123456789n is sent as', bigint.subarray(0, 9));
assert.strictEqual(bigint.subarray(0, 9).toString('hex'), 'd10000000400000000');
const uuid = Buffer.from('9800112233445566778899aabbccddeeff', 'hex');
console.log('a uuid is read as', read(uuid), 'and sent on as', written(read(uuid)));
assert.strictEqual(written(read(uuid))[0], 0xa0);
assert(written(types.wrap_long(found)).subarray(0, 9).equals(id));
JAVASCRIPT
