"""What extras cost a server under live traffic: an open overview page of the console, and tracing.

20 publishers and 20 consumers on 20 streams, lone messages at a steady rate over the stream protocol. Rounds take
turns: plain; with 20 open pages, that is a page's requests 20 times as often, so that their cost stands out; and a
server with tracing, whose spans go to a collector that drops them. Each figure is the server's processor time, and its
ratio to the plain rounds.

    python benchmarks/live_extras.py --rounds 4 --seconds 20
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator

from broker_live import WARM_UP_S
from live_load import Window, run_load
from live_peers import RIGS
from serving import Served, served

PAIRS = 20
PAGES = 20
EVERY_S = {"overview": 5.0, "history": 5.0, "streams": 5.0}
"""The requests of the overview page, again so long after each answer (`server/console/pages/overview.mjs`)."""

COLLECTOR = """
import http.server
class Dropping(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dropping)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def collector() -> Iterator[int]:
    """The port of a collector that takes spans and drops them."""
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


@contextlib.contextmanager
def open_pages(server: Served) -> Iterator[None]:
    """The requests of `PAGES` open pages, with the cookie of a session."""
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"])
    body = json.dumps({"user": "guest", "password": "guest"})
    connection.request("POST", "/api/session", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    is_closed = threading.Event()

    def poll(path: str, every_s: float) -> None:
        while True:
            # Between two requests the server has ended a connection that stayed.
            polling = http.client.HTTPConnection("127.0.0.1", server.ports["http"])
            polling.request("GET", f"/api/{path}", headers={"Cookie": cookie, "Accept-Encoding": "gzip"})
            answered = polling.getresponse()
            answered.read()
            assert answered.status == 200, answered.status
            polling.close()
            if is_closed.wait(every_s):
                return

    threads = [threading.Thread(target=poll, args=(path, every_s / PAGES)) for path, every_s in EVERY_S.items()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_closed.set()
        for thread in threads:
            thread.join()


def cores(server: Served, *, rate: int, seconds: float) -> float:
    """Processor cores that the server uses under the load."""
    with RIGS["stream"]({"stream": ("127.0.0.1", server.ports["stream"])}, PAIRS) as rig:
        one = run_load(
            rig.publishers,
            rig.consumers,
            rate=rate,
            seconds=seconds,
            warm_up_s=WARM_UP_S,
            window=Window(server.pid, os.getpid()),
        )
    return one.shares["cpu"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a round after its warm-up")
    given = parser.parse_args()
    found: dict[str, list[float]] = {"plain": [], "pages": [], "tracing": []}
    with collector() as port:
        tracing = {"SERVER__TRACING__ENABLED": "true"}
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        with served("stream", "http") as plain, served("stream", "http", settings=tracing) as traced:
            for server in (plain, traced):
                server.wait_for_children()
                cores(server, rate=given.rate, seconds=2.0)
            for number in range(given.rounds):
                for name in found:
                    with open_pages(plain) if name == "pages" else contextlib.nullcontext():
                        server = traced if name == "tracing" else plain
                        found[name].append(cores(server, rate=given.rate, seconds=given.seconds))
                shown = ", ".join(f"{name} {values[-1]:.4f}" for name, values in found.items())
                print(f"round {number + 1}, cores: {shown}", flush=True)
    for name in ("pages", "tracing"):
        ratios = [with_it / without for with_it, without in zip(found[name], found["plain"], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name}: {statistics.median(ratios):.2f} of the plain server ({spread})")
        if name == "pages":
            print(f"one page adds {(statistics.median(ratios) - 1) / PAGES:.2%}")


if __name__ == "__main__":
    main()
