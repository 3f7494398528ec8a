"""The S3 server of the tests and the proxy before it: what was put is got, faults come as ordered, all is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.fs as pf
import pytest

from s3_proxy import BUCKET_FULL, EXPIRED_TOKEN, SLOW_DOWN, Fault, S3Proxy, s3_proxy
from s3_server import S3Server, s3_server

DATA = bytes(range(256)) * 5000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(server.endpoint) as running:
        yield running


def put(filesystem: pf.S3FileSystem, path: str) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(DATA)


def test_what_is_put_is_got_and_lies_in_the_folder(server: S3Server) -> None:
    path = f"{server.new_bucket()}/a/b"
    put(server.filesystem(), path)
    with server.filesystem().open_input_file(path) as file:
        assert file.read_at(1000, 300) == DATA[300:1300]
    assert (server.objects / path).read_bytes() == DATA


def test_the_proxy_counts_requests_and_bytes(server: S3Server, proxy: S3Proxy) -> None:
    path = f"{server.new_bucket()}/object"
    put(server.filesystem(proxy.endpoint), path)
    assert proxy.uploaded >= len(DATA)
    proxy.forget()
    with server.filesystem(proxy.endpoint).open_input_file(path) as file:
        assert file.read_at(1000, 300) == DATA[300:1300]
        assert file.read_at(len(DATA), 0) == DATA
    assert proxy.requests["GET"] == 2
    assert proxy.downloaded == 1000 + len(DATA)
    assert next(exchange.range for exchange in proxy.exchanges if exchange.method == "GET") == "bytes=300-1299"


def test_faults_are_met_as_often_as_is_said(server: S3Server, proxy: S3Proxy) -> None:
    bucket = server.new_bucket()
    put(server.filesystem(), f"{bucket}/object")
    patient, hasty = (
        server.filesystem(
            proxy.endpoint, request_timeout=1, retry_strategy=pf.AwsStandardS3RetryStrategy(max_attempts=attempts)
        )
        for attempts in (3, 1)
    )
    with patient.open_input_file(f"{bucket}/object") as file:
        proxy.forget()
        with proxy.fault(Fault(SLOW_DOWN, methods=("GET",), times=2)):
            assert file.read_at(4096, 0) == DATA[:4096]
        assert [exchange.status for exchange in proxy.exchanges] == [503, 503, 206]
    with hasty.open_input_file(f"{bucket}/object") as file:
        # pyarrow says the code of an answer to GetObject by chance only.
        with proxy.fault(Fault(EXPIRED_TOKEN)), pytest.raises(OSError, match=r"ACCESS_DENIED|token has expired"):
            file.read_at(4096, 0)
        with proxy.fault(Fault(cut_after=50)), pytest.raises(OSError, match="4046 bytes missing"):
            file.read_at(4096, 0)
        with proxy.fault(Fault(delay_s=4)), pytest.raises(OSError, match="Timeout was reached"):
            file.read_at(4096, 0)
    with proxy.fault(Fault(BUCKET_FULL, methods=("PUT", "POST"), path="/other")):
        put(hasty, f"{bucket}/object")
        with pytest.raises(OSError, match="507"):
            put(hasty, f"{bucket}/other")
