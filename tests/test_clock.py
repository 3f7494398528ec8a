"""How long the command line and Spark wait for what another process holds, and how times are shown."""

from __future__ import annotations

import pytest

from headgate import clock


@pytest.mark.parametrize(("limit_s", "pauses"), [(0.0, 0), (0.019, 0), (0.05, 2), (5.0, 250)])
def test_a_patient_wait_pauses_until_its_limit(monkeypatch: pytest.MonkeyPatch, limit_s: float, pauses: int) -> None:
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)
    wait = clock.patient(limit_s)
    for _ in range(2):
        paused.clear()
        tries = 1
        while wait(tries):
            tries += 1
        assert len(paused) == pauses
        assert sum(paused) <= limit_s


def test_times_are_shown_in_utc_and_strange_ones_as_numbers() -> None:
    assert clock.shown_time(1_795_188_542_493) == "2026-11-20T15:29:02.493Z"
    assert clock.shown_time(-1) == "1969-12-31T23:59:59.999Z"
    assert clock.shown_time(2**63 - 1) == "9223372036854775807 ms"
