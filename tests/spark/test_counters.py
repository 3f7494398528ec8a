"""Counters of a query: repeated tasks replace, finished batches fold, nothing is counted twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from headgate.spark import counters as counters_of
from headgate.spark import forget_counters
from headgate.spark.counters import OwnCounters, fold_counters, record_counters


def test_counters_are_summed_by_name_and_a_repeated_task_replaces_its_own(root: Path) -> None:
    record_counters(root, "query", "batch-0", {"chunks_examined": 3, "bytes_read": 10})
    record_counters(root, "query", "batch-1", {"chunks_examined": 2})
    record_counters(root, "query", "batch-0", {"chunks_examined": 4, "bytes_read": 10})
    record_counters(root, "other", "batch-0", {"chunks_examined": 100})
    assert counters_of("query", root=root) == {"chunks_examined": 6, "bytes_read": 10}
    forget_counters("query", root=root)
    assert counters_of("query", root=root) == {}
    assert counters_of("other", root=root) == {"chunks_examined": 100}


@examples(0.5)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=6))
def test_folding_changes_no_sum_and_leaves_few_files(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int]
) -> None:
    root = tmp_path_factory.mktemp("root")
    total = 0
    for batch, tasks in enumerate(batches):
        for task in range(tasks):
            record_counters(root, "query", f"{batch}-{task}", {"messages": task + 1})
            total += task + 1
        fold_counters(root, "query")
        assert counters_of("query", root=root).get("messages", 0) == total
    assert len(list((root / ".headgate/counters/query").glob("*.json"))) <= 65


def test_a_fold_that_died_before_it_removed_the_files_counts_nothing_twice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in range(70):
        record_counters(root, "query", f"0-{task}", {"messages": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        fold_counters(root, "query")
    assert counters_of("query", root=root) == {"messages": 70}
    record_counters(root, "query", "1-0", {"messages": 1})
    fold_counters(root, "query")
    assert counters_of("query", root=root) == {"messages": 71}


_COUNT_AND_WAIT = """
import sys
from pathlib import Path
from headgate.spark.counters import OwnCounters, record_counters
root = Path(sys.argv[1])
with OwnCounters(root) as own:
    own.claim("killed.run")
    record_counters(root, "killed.run", "0", {"messages": 1})
    print(own.sums(), flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_run_counted_for_itself_is_removed_by_the_next(root: Path) -> None:
    record_counters(root, "asked", "0", {"messages": 1})
    command = [sys.executable, "-c", _COUNT_AND_WAIT, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "[{'messages': 1}]\n"
        OwnCounters(root)
        assert counters_of("killed.run", root=root) == {"messages": 1}
        other.kill()
    with OwnCounters(root) as own:
        own.claim("this")
        record_counters(root, "this", "0", {"messages": 2})
        assert own.sums() == [{"messages": 2}]
    assert [path.name for path in (root / ".headgate/counters").iterdir()] == ["asked"]
