"""Languages that other distributions bring: a small one is built, installed, and used like those of the package."""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.derived.match_index.identity import check_registrable, key_of
from headgate.errors import ConfigError, FilterConversionError, FilterError, FilterTypeError
from headgate.evaluate.filter import Engine, Filter
from headgate.evaluate.pruning import wanted_values
from headgate.evaluate.rules import RuleSet
from headgate.evaluate.semantics import semantics_of
from headgate.evaluate.verdict import Verdict
from headgate.language import dialect_named, dialect_names, registry
from headgate.language.tree import Field, OwnRules
from headgate.message import EncodedMessages, Message
from headgate.message.fields import FieldReference, Section

PACKAGE = Path(__file__).parent / "shout"
MESSAGES = [Message(b"", application_properties={"s": value}) for value in ("Hey", "HEY", "ho", 5)]
BATCH = EncodedMessages.of([message.encode() for message in MESSAGES])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the example was installed into; it is on the path of this process."""
    source, target = tmp_path_factory.mktemp("source") / "shout", tmp_path_factory.mktemp("installed")
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)],
        check=True,
        capture_output=True,
    )
    sys.path.append(str(target))
    importlib.invalidate_caches()
    yield target
    sys.path.remove(str(target))
    registry._brought.cache_clear()


@pytest.mark.usefixtures("installed")
def test_names_of_brought_languages_follow_the_built_in_ones() -> None:
    names = dialect_names()
    assert names[:5] == ("rabbitmq", "amqp", "rocketmq", "servicebus", "cesql")
    assert {"shout", "whisper"} <= set(names[5:])


@pytest.mark.usefixtures("installed")
def test_brought_language_with_operators_of_its_own_decides_everywhere() -> None:
    filter = Filter.parse("s = 'hey'", "shout")
    assert [filter.verdict(message, now_ms=0) for message in MESSAGES] == [
        Verdict.TRUE,
        Verdict.TRUE,
        Verdict.FALSE,
        Verdict.ERROR,
    ]
    for engine in Engine:
        assert filter.verdicts(BATCH, now_ms=0, engine=engine).tolist() == [1, 1, 0, 3]
    assert pickle.loads(pickle.dumps(filter)) == filter
    filters = [Filter.parse(f"s = 'h{letters}'", "shout") for letters in ("ey", "o", "a", "u", "i")]
    plain = [Filter.parse(f"s = '{text}'", "rabbitmq") for text in ("Hey", "ho", "a", "b", "c")]
    found = RuleSet([*filters, *plain]).match(BATCH, now_ms=0)
    pairs = zip(found.rows.tolist(), found.rules.tolist(), strict=True)
    assert list(pairs) == [(0, 0), (0, 5), (1, 0), (2, 1), (2, 6)]


@pytest.mark.usefixtures("installed")
def test_nothing_is_concluded_from_operators_that_only_the_language_knows() -> None:
    filter = Filter.parse("s = 'hey'", "shout")
    assert filter.program is None
    assert wanted_values(filter.tree, FieldReference(Section.APPLICATION_PROPERTIES, key=b"s")) is None
    assert key_of(filter) is None
    with pytest.raises(FilterTypeError, match="cannot be registered"):
        check_registrable(filter)
    for target in ("amqp", "servicebus"):
        with pytest.raises(FilterConversionError):
            filter.convert(target, assume=["kinds", "spelling"])


@pytest.mark.usefixtures("installed")
def test_brought_language_with_the_rules_of_rabbitmq_runs_in_the_kernel_and_converts() -> None:
    filter = Filter.parse("s IS 'Hey' AND s IS p.subject", "whisper")
    assert filter.convert("rabbitmq").text == "s = 'Hey' AND s = p.subject"
    assert filter.fields == Filter.parse("s = p.subject", "rabbitmq").fields
    assert not filter.has_own_rules
    with pytest.raises(FilterError, match="whisper filter refused"):
        Filter.parse("s = 'Hey'", "whisper")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mumble", "dialect 'mumble' of headgate-shout 1.5 cannot be loaded from headgate_shout:MISSING"),
        ("grunt", "dialect 'grunt' of headgate-shout 1.5 cannot be loaded .*: ValueError: out of breath"),
        ("murmur", "dialect 'murmur' of headgate-shout 1.5: .* calls itself 'another'"),
    ],
)
def test_broken_language_names_its_distribution(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dialect_named(name)


def test_missing_operators_refuse_the_filter_and_name_the_module() -> None:
    with pytest.raises(ConfigError, match="no_such_operators with the operators of a language cannot be imported"):
        semantics_of(OwnRules("no_such_operators"))
    field = Field(FieldReference(Section.APPLICATION_PROPERTIES, key=b"s"), OwnRules("headgate.errors"))
    with pytest.raises(ConfigError, match=r"headgate\.errors has not all operators of a language, field is missing"):
        Filter(field, "s", "shout")


def test_installed_language_is_there_for_commands(installed: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    shown = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "filter", "check", "s = 'hey'", "--dialect", "shout"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert (shown.returncode, shown.stdout) == (0, "accepted as a filter in shout: s = 'hey'\n")
