#!/bin/sh
# rhea encodes NaN as null, and −0 as the integer 0: the value of an application property changes its type silently.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund rhea@3.0.4 >/dev/null
node - <<'JAVASCRIPT'
const assert = require('assert');
const { message } = require('rhea');
console.log('rhea', require('rhea/package.json').version);
for (const [value, read] of [[NaN, null], [-0, 0], [Infinity, Infinity], [1.5, 1.5]]) {
  const found = message.decode(message.encode({ application_properties: { a: value }, body: '' })).application_properties.a;
  console.log(`${Object.is(value, -0) ? '-0' : value} is read back as ${found}`);
  assert(Object.is(found, read));
}
JAVASCRIPT
