"""Any damage of one file in a root is harmless or named, whatever a broker keeps there and is asked.

`HEADGATE_DAMAGE_SEED` gives the seed of a run again, with `HEADGATE_DAMAGE_NUMBER` one mutation of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from log_streams import quick_folder

from . import judging
from .limits import no_hang, quiet
from .mutations import draw
from .root_judging import CANNOT_SHOW, Result, Wrong, examine, refusals
from .roots import Root, make_root

SEED = 20_261_127


def report(result: Result, seed: int) -> str:
    groups: dict[tuple[str, str, str, str], list[Wrong]] = {}
    for each in result.wrong:
        groups.setdefault(each.group, []).append(each)
    lines = [
        f"{len(result.wrong)} wrong answers in {len({each.number for each in result.wrong})} mutations, seed {seed}"
    ]
    for (kind, where, question, what), members in sorted(groups.items(), key=lambda each: each[0][1]):
        lines.append(f"{len(members):4} × {kind} | {where} | {question} | {what}")
        lines.append(f"       number {members[0].number}: {members[0].mutation}: {members[0].detail}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def original() -> Iterator[Root]:
    with quick_folder() as folder:
        made = make_root(Path(folder) / "root")
        assert not any(refusals(answer) for answer in made.answers.values())
        yield made


def run(original: Root, seed: int, count: int) -> None:
    only = os.environ.get("HEADGATE_DAMAGE_NUMBER")
    numbers = range(count) if only is None else range(int(only), int(only) + 1)
    result = Result()
    for number in numbers:
        mutation = draw(original.folders, seed, number)
        with no_hang(), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            examine(original, mutation, number, result)
    print(f"HEADGATE_DAMAGE_SEED={seed}, {len(numbers)} mutations: {dict(result.verdicts)}")
    if result.wrong:
        pytest.fail(report(result, seed), pytrace=False)


def test_the_design_page_has_what_formats_cannot_show() -> None:
    page = (Path(__file__).parents[2] / "docs" / "design" / "streams.md").read_text()
    table = page.partition("| Damage that nobody can see")[2].partition("\n\n")[0]
    said = [line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]]
    assert said == [*(each.reason for each in judging.CANNOT_SHOW), *(each.text for each in CANNOT_SHOW)]


def test_damage_of_a_root_is_harmless_or_an_error_that_names_the_file(original: Root) -> None:
    run(original, int(os.environ.get("HEADGATE_DAMAGE_SEED", SEED)), 30)


@pytest.mark.long
def test_much_damage_of_a_root_is_harmless_or_an_error_that_names_the_file(original: Root, seed: int) -> None:
    run(original, int(os.environ.get("HEADGATE_DAMAGE_SEED", seed)), 3_000)
