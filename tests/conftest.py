"""What all tests share: how many examples properties take, the seed of the run, and the real stream folders."""

from __future__ import annotations

import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from headgate.broker import users
from headgate.log.remote import cache

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

DATA = Path(__file__).parent / "data"

_COMMON = settings(deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.register_profile("fast", _COMMON, max_examples=50, stateful_step_count=25)
settings.register_profile("full", _COMMON, max_examples=500, stateful_step_count=60)
# `--hypothesis-profile=full`, as in `make test-long`, takes the place of this.
settings.load_profile("fast")

_PASSWORD_COST = {name: getattr(users, name) for name in ("_TIME_COST", "_MEMORY_KIB")}

# JVMs that tests start live for seconds: what makes a server quick over hours costs them half of their processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_SEED = "HEADGATE_TEST_SEED"
# In the environment, so that processes of the same run have the same.
os.environ.setdefault(_SEED, str(secrets.randbits(32)))


def pytest_report_header() -> str:
    return f"{_SEED}={os.environ[_SEED]} gives what tests draw by chance again; hypothesis prints its own"


# Folders whose tests share what is dear to start (a Spark session, a server with its clients); the first that fits.
# Tests of pipelines have a Spark session of their own: with all tests of Spark, one worker would be busy for too long.
_TOGETHER = ("tests/spark/pipeline/", "tests/spark/", "tests/interop/")

# Few tests that take long: by the number of their tests they would begin last, and the other workers wait for them.
_EARLY = (
    "tests/damage/test_campaign.py",
    "tests/testing/test_plugin.py",
    "tests/test_tutorial.py",
    "tests/damage/test_roots.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With workers (`-n 3`) the tests of a file stay on one of them, and those of such folders.

    Marks of groups (`--dist loadgroup`) do not do that: pytest-xdist 3.8 writes them where pytest 9.2 does not look.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in _TOGETHER if file.startswith(folder)), file)

        def schedule(self) -> None:
            is_first = self.collection is None
            super().schedule()
            for scope in reversed(_EARLY) if is_first else ():
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)

    return Together(config, log)


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Hashing a password takes no time: every test with a broker or a server does, and its cost is not what they test.

    Programs that tests start hash as always; so do tests that take `real_passwords`.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"_TIME_COST": 1, "_MEMORY_KIB": 8}.items():
            patched.setattr(users, name, value)
        yield


@pytest.fixture
def real_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes cost what they do outside of tests."""
    for name, value in _PASSWORD_COST.items():
        monkeypatch.setattr(users, name, value)


@pytest.fixture(scope="session")
def seed() -> int:
    """Where tests begin that draw by chance: printed at the head of the run, `HEADGATE_TEST_SEED` gives it again."""
    return int(os.environ[_SEED])


@pytest.fixture(scope="session")
def rabbitmq_streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `__customer-events_…` and `__regional-events_…` as RabbitMQ wrote them. Do not change it."""
    folder = tmp_path_factory.mktemp("rabbitmq-streams")
    with tarfile.open(DATA / "rabbitmq-streams.tar.xz") as archive:
        # As an attribute: the argument `filter` came with Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


@pytest.fixture
def remote_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test's own for segments of object storage."""
    monkeypatch.setenv("HEADGATE_REMOTE_CACHE", str(tmp_path / "cache"))
    cache.cache_folder.cache_clear()
    yield cache.cache_folder()
    cache.cache_folder.cache_clear()


@pytest.fixture
def copy_of_stream(rabbitmq_streams: Path, tmp_path: Path) -> Path:
    """A copy of the regional-events folder, to be changed."""
    source = next(rabbitmq_streams.glob("__regional-events_*"))
    return Path(shutil.copytree(source, tmp_path / source.name))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the provider of OpenTelemetry was told, in the place of the process's own."""
    # Imported here: two files of tests need it.
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter
