from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command_line import Run
from waiting import LIMIT_S

FREE = {
    f"HEADGATE_SERVER__LISTENERS__{name}": "0"
    for name in (
        *("AMQP", "STREAM", "STOMP", "HTTP", "SERVICEBUS"),
        *("ROCKETMQ", "ROCKETMQ_NAMES", "ROCKETMQ_CLASSIC"),
    )
}


@contextmanager
def served(*arguments: object, cwd: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`headgate serve` without kernels, once it is ready, and the line that says so."""
    variables = {**os.environ, **FREE, "HEADGATE_KERNELS": "off", "HEADGATE_SERVER__LISTENERS__HOST": "127.0.0.1"}
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=variables | environment,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def ports_of(line: str) -> dict[str, int]:
    return {name: int(port) for name, _, port in (word.partition("=") for word in line.split() if "=" in word)}


def test_serve_says_ready_once_when_every_listener_accepts_and_ends_with_sigterm(tmp_path: Path) -> None:
    with served(cwd=tmp_path) as (process, line):
        ports = ports_of(line)
        assert line.startswith("ready: headgate-data on 127.0.0.1: ") and set(ports) == {
            "amqp",
            "stream",
            "stomp",
            "http",
            "servicebus",
            "rocketmq",
            "rocketmq_names",
            "rocketmq_classic",
        }
        for port in ports.values():
            socket.create_connection(("127.0.0.1", port), 5).close()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{ports['http']}/health/ready", timeout=5) as answer:
            assert answer.read() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        rest, log = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, rest) == (0, "")
        authority = Path("headgate-data") / ".headgate" / "tls" / "authority.pem"
        assert f"clients that check it trust {authority}" in log and (tmp_path / authority).is_file()
        assert "SIGTERM: stopping" in log and log.rstrip().endswith("stopped")
    assert (tmp_path / "headgate-data").is_dir()


def test_a_second_signal_does_not_wait_for_clients(tmp_path: Path) -> None:
    patient = {"HEADGATE_SERVER__TIMEOUTS__SHUTDOWN_S": "1000", "HEADGATE_SERVER__TIMEOUTS__LINGER_S": "1000"}
    with (
        served(cwd=tmp_path, **patient) as (process, line),
        socket.create_connection(("127.0.0.1", ports_of(line)["amqp"]), 5) as client,
    ):
        client.sendall(b"AMQP\x03\x01\x00\x00")
        assert client.recv(8)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "SIGTERM: stopping" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_serve_in_memory_leaves_nothing(tmp_path: Path) -> None:
    with served("--in-memory", cwd=tmp_path, TMPDIR=str(tmp_path), HEADGATE_ROOT="elsewhere") as (process, line):
        (folder,) = tmp_path.glob("*/files")
        assert line.startswith(f"ready: {folder} on ") and (folder / ".headgate" / "users.json").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_serve_in_memory_has_no_root(run: Run, tmp_path: Path) -> None:
    shown = run("serve", "--in-memory", "--root", tmp_path / "data")
    assert (shown.status, "--in-memory" in shown.err) == (2, True)


def test_serve_starts_again_after_it_was_killed(tmp_path: Path) -> None:
    for _ in range(2):
        with served("--root", tmp_path / "root", cwd=tmp_path) as (process, line):
            assert line.startswith("ready: ")
            process.kill()


def test_serve_takes_its_configuration_and_logs_json(tmp_path: Path) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text('root = "configured"\n[log]\nformat = "json"\n[[stream]]\nname = "orders"\n', encoding="utf-8")
    with served("--config", config, cwd=tmp_path, HEADGATE_SERVER__LISTENERS__STOMP="off") as (process, line):
        assert line.startswith("ready: configured") and "stomp" not in ports_of(line)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert '"message":"SIGINT: stopping"' in log
    assert (tmp_path / "configured" / "streams" / "orders").is_dir()


def test_a_taken_port_is_named_with_the_way_out(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "headgate.toml"
        config.write_text(f'[listeners]\nhost = "127.0.0.1"\namqp = {port}\n', encoding="utf-8")
        variables = {**os.environ, "HEADGATE_KERNELS": "off"}
        shown = subprocess.run(
            [sys.executable, "-m", "headgate.cli", "serve", "--config", str(config)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=tmp_path,
            env=variables,
        )
    assert shown.returncode == 2 and shown.stdout == ""
    assert shown.stderr == (
        f"headgate: listeners.amqp: cannot listen on 127.0.0.1 port {port}: the port is taken by another process; "
        "move it with listeners.amqp or HEADGATE_SERVER__LISTENERS__AMQP, or switch it `off`\n"
    )


def test_an_unknown_key_is_named_with_its_file(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text("[listener]\n", encoding="utf-8")
    shown = run("serve", "--config", config)
    assert shown.status == 2 and f"headgate: {config}: unknown key listener; known are root, listeners" in shown.err
