#!/bin/sh
# pyarrow: the metadata of a file on S3 (its ETag) has keys of type str and values of type bytes; that of a schema has
# bytes for both. So `metadata().get(b"ETag")` is None for every object, and two objects seem to be equal.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 "moto[s3,server]==5.2.5"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import pyarrow as pa
import pyarrow.fs as pf
from moto.server import ThreadedMotoServer

print("pyarrow", pa.__version__)
schema = pa.schema([], metadata={"ETag": "x"})
print("of a schema:", dict(schema.metadata))
assert dict(schema.metadata) == {b"ETag": b"x"}
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
try:
    host, port = server.get_host_and_port()
    filesystem = pf.S3FileSystem(
        access_key="key", secret_key="secret", endpoint_override=f"http://{host}:{port}", region="us-east-1",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("bucket")
    with filesystem.open_output_stream("bucket/object") as stream:
        stream.write(b"abc")
    with filesystem.open_input_stream("bucket/object") as stream:
        found = stream.metadata()
    print("of a file:", {"ETag": found["ETag"]}, "and by b'ETag':", found.get(b"ETag"))
    assert all(isinstance(key, str) and isinstance(value, bytes) for key, value in found.items())
    assert found["ETag"] and found.get(b"ETag") is None
finally:
    server.stop()
PYTHON
