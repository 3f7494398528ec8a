#!/bin/sh
# pyarrow's S3FileSystem: an open file whose object was replaced by a shorter one gives as many bytes as were asked for.
# The server answers 206 with fewer bytes; what is missing is neither cut off nor an error: it is filled up.
# Exit status: 0 = as stated, another one = the behaviour is different.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 "moto[s3,server]==5.2.5"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import urllib.request

import pyarrow
import pyarrow.fs as pf
from moto.server import ThreadedMotoServer

print("pyarrow", pyarrow.__version__)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
try:
    host, port = server.get_host_and_port()
    filesystem = pf.S3FileSystem(
        access_key="key", secret_key="secret", endpoint_override=f"http://{host}:{port}", region="us-east-1",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("bucket")

    def put(data: bytes) -> None:
        with filesystem.open_output_stream("bucket/object") as stream:
            stream.write(data)

    put(b"a" * 65536)
    with filesystem.open_input_file("bucket/object") as file:
        assert file.read_at(65536, 0) == b"a" * 65536
        put(b"b" * 1000)
        request = urllib.request.Request(
            f"http://{host}:{port}/bucket/object", headers={"Range": "bytes=0-65535", "Authorization": "AWS key:x"}
        )
        with urllib.request.urlopen(request) as response:
            body = response.read()
        print("the server answers", response.status, "with", len(body), "bytes")
        assert body == b"b" * 1000
        got = file.read_at(65536, 0)
        print("read_at gives", len(got), "bytes, of the object are", len(got.rstrip(got[-1:])))
        assert len(got) == 65536 and got[:1000] == b"b" * 1000
finally:
    server.stop()
PYTHON
