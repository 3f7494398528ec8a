#!/bin/sh
# rabbitmq-stream-js-client reads the first sub-batch of a chunk only and gives its messages the offsets 0, 1, …: the
# rest of the chunk is lost without an error. How many sub-batches share a chunk is the broker's timing.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund rabbitmq-stream-js-client@1.0.0 >/dev/null
node - <<'JAVASCRIPT'
const assert = require('assert');
const { gzipSync, gunzipSync, crc32 } = require('zlib');
const { ResponseDecoder } = require('./node_modules/rabbitmq-stream-js-client/dist/response_decoder.js');
console.log('rabbitmq-stream-js-client', require('rabbitmq-stream-js-client/package.json').version);

const u16 = (n) => { const b = Buffer.alloc(2); b.writeUInt16BE(n); return b; };
const u32 = (n) => { const b = Buffer.alloc(4); b.writeUInt32BE(n); return b; };
const u64 = (n) => { const b = Buffer.alloc(8); b.writeBigUInt64BE(BigInt(n)); return b; };
const sized = (bytes) => Buffer.concat([u32(bytes.length), bytes]);
const message = (text) => Buffer.concat([Buffer.from([0x00, 0x53, 0x75, 0xa0, text.length]), Buffer.from(text)]);
const subBatch = (texts) => {
  const plain = Buffer.concat(texts.map((text) => sized(message(text))));
  const packed = gzipSync(plain);
  return Buffer.concat([Buffer.from([0x90]), u16(texts.length), u32(plain.length), u32(packed.length), packed]);
};
const chunk = (firstOffset, batches) => {
  const data = Buffer.concat(batches.map(subBatch));
  const records = batches.flat().length;
  return Buffer.concat([Buffer.from([0x50, 0]), u16(batches.length), u32(records), u64(0), u64(1), u64(firstOffset),
    u32(crc32 ? crc32(data) : 0), u32(data.length), u32(0), u32(0), data]);
};
const nothing = () => {};
const read = (batches) => {
  const decoder = new ResponseDecoder({}, { debug: nothing, info: nothing, warn: nothing, error: nothing });
  let found = [];
  decoder.on('deliverV1', (response) => { found = response.messages; });
  decoder.add(sized(Buffer.concat([u16(8), u16(1), Buffer.from([1]), chunk(100, batches)])),
    () => ({ decompress: (bytes) => gunzipSync(bytes) }));
  return found.map((one) => [one.content.toString(), Number(one.offset)]);
};

const one = read([['a', 'b']]);
const three = read([['a', 'b'], ['c', 'd'], ['e', 'f']]);
console.log('chunk at offset 100 with one sub-batch of two messages:', JSON.stringify(one));
console.log('chunk at offset 100 with three sub-batches of two messages:', JSON.stringify(three));
assert.deepStrictEqual(one, [['a', 0], ['b', 1]]);
assert.deepStrictEqual(three, [['a', 0], ['b', 1]]);
JAVASCRIPT
