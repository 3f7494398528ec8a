"""Generated requests, valid and not, to every endpoint of a real server: none fails, each answer is as documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from server.running import running_server

from .test_endpoints import ask

WITHIN_S = 90

_KEEPS_THE_LOGIN = r"/api/users/\{user\}$"
"""What could change or delete the user that asks."""
_WAITS = r"/(receive|follow)$"
"""What answers late, or never ends."""
_DEPENDS_ON_WHAT_IS_THERE = "positive_data_acceptance"
_WAITS_FOR_DELAYS = "ignored_auth"
"""`test_endpoints` asks each endpoint without a login: wrong passwords are answered late."""
_DELETED_IS_NOT_GONE = "use_after_free"
"""DELETE of a job cancels it, and that of dead letters empties their list: both can be looked at afterwards."""

_NAMES = """
[parameters]
"path.topic" = "shop"
"path.subscription" = "red"
"path.stream" = "orders"
"path.group" = "billing"
"path.queue" = "orders"
"path.check" = "alarms"
"""
"""Names that are there, unless another request of the run deleted them."""


@pytest.mark.long
@pytest.mark.parametrize("names", ["", _NAMES], ids=["any names", "names that are there"])
def test_generated_requests_are_answered_as_documented(tmp_path: Path, names: str) -> None:
    (tmp_path / "schemathesis.toml").write_text(names)
    users = [{"name": "anna", "password": "secret"}]
    rocketmq = {"topic": [{"name": "payments", "queues": 2}], "group": [{"name": "billing"}]}
    with running_server(
        tmp_path,
        handlers={},
        user=users,
        stream=[{"name": "orders"}],
        rocketmq=rocketmq,
        limits={"login_failures_a_minute": 1_000_000},
    ) as running:
        for path in ("/api/topics/shop", "/api/topics/shop/subscriptions/red"):
            assert ask(running, "PUT", path)[0] == 201
        command = [
            *(str(Path(sys.executable).parent / "schemathesis"), "run"),
            f"http://127.0.0.1:{running.ports['http']}/api/openapi.json",
            *("--auth", "guest:guest", "--checks", "all"),
            *("--exclude-checks", f"{_DEPENDS_ON_WHAT_IS_THERE},{_WAITS_FOR_DELAYS},{_DELETED_IS_NOT_GONE}"),
            *("--exclude-path-regex", f"{_KEEPS_THE_LOGIN}|{_WAITS}"),
            *("--max-time", str(WITHIN_S), "--continue-on-failure", "--no-color", "--warnings", "off"),
        ]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3 * WITHIN_S)
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]
