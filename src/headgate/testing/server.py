"""A server of its own for each test: an empty root, free ports, the entities that the test names."""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate import kernels
from headgate.broker import EntityDeclaration, from_emulator
from headgate.errors import ConfigError
from headgate.log import unflushed
from headgate.server import KERNELS_WITHIN_S, settings_of
from headgate.temporary import Purpose, TemporaryFolder
from headgate.testing.server_thread import served

_HOST = "127.0.0.1"
_LISTENERS = ("amqp", "stream", "stomp", "http", "servicebus", "rocketmq", "rocketmq_names", "rocketmq_classic")
_KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
_LOGIN = "guest:guest"
# A test may end with clients that are still open.
_TIMEOUTS = {"login_failure_s": 0.05, "linger_s": 0.5, "shutdown_s": 0.5}


@dataclass(frozen=True, slots=True)
class HeadgateServer:
    """Where a server listens, as clients want to be told."""

    ports: Mapping[str, int]
    """By listener, as in the configuration: `amqp`, `stream`, `http`, `servicebus`, `rocketmq` and so on."""
    authority: Path
    """The certificate that clients with TLS must trust, as the administration clients for Python and JavaScript do."""

    host: str = _HOST
    user: str = "guest"
    password: str = "guest"

    @property
    def servicebus(self) -> str:
        """Connection string for clients of Service Bus that send and receive."""
        return f"Endpoint=sb://{self.host}:{self.ports['amqp']};{_KEY}"

    @property
    def servicebus_administration(self) -> str:
        """Connection string for their administration clients."""
        return f"Endpoint=sb://{self.host}:{self.ports['servicebus']};{_KEY}"

    @property
    def rocketmq(self) -> str:
        """Endpoints for clients of RocketMQ that speak gRPC."""
        return f"{self.host}:{self.ports['rocketmq']}"

    @property
    def rocketmq_names(self) -> str:
        """Name server for clients of RocketMQ that speak the classic protocol."""
        return f"{self.host}:{self.ports['rocketmq_names']}"

    @property
    def amqp(self) -> str:
        """URI for clients of AMQP 1.0 and AMQP 0.9.1."""
        return f"amqp://{_LOGIN}@{self.host}:{self.ports['amqp']}/"

    @property
    def stream(self) -> str:
        """URI for clients of RabbitMQ's stream protocol."""
        return f"rabbitmq-stream://{_LOGIN}@{self.host}:{self.ports['stream']}/"

    @property
    def stomp(self) -> str:
        """URI for clients of STOMP."""
        return f"stomp://{_LOGIN}@{self.host}:{self.ports['stomp']}/"

    @property
    def http(self) -> str:
        """Console, health, metrics and lists."""
        return f"http://{self.host}:{self.ports['http']}"


@contextlib.contextmanager
def running_server(*entities: Path | Mapping[str, Any]) -> Iterator[HeadgateServer]:
    """A server that accepts, over an empty folder; at the end nothing is left of it: no thread, socket or file.

    `entities` are there at once: tables as the configuration file has them (`{"queue": [{"name": "jobs"}]}`), files
    with such tables (`.toml`), and configurations of Microsoft's emulator (`.json`). Raises ConfigError that names what
    is wrong. Cost: about a tenth of a second; the first time in a process half a second more.
    """
    tables, declared = _read(entities)
    _load_kernels()
    with TemporaryFolder(Purpose.SERVER) as root:
        settings = settings_of(
            {
                **tables,
                "root": str(root),
                "listeners": {"host": _HOST, **dict.fromkeys(_LISTENERS, 0)},
                "timeouts": _TIMEOUTS,
            },
            source="entities: ",
        )
        with unflushed(root), served(settings, entities=declared) as running:
            yield HeadgateServer(dict(running.server.ports), root / ".headgate" / "tls" / "authority.pem")


def _read(entities: Sequence[Path | Mapping[str, Any]]) -> tuple[dict[str, list[Any]], list[EntityDeclaration]]:
    tables: dict[str, list[Any]] = {}
    declared: list[EntityDeclaration] = []
    for each in entities:
        if isinstance(each, Path) and each.suffix == ".json":
            try:
                declared += from_emulator(each.read_bytes())
            except (ConfigError, OSError) as error:
                raise ConfigError(f"{each}: {error}") from error
            continue
        for name, entries in _tables(each).items():
            if name not in _TABLES:
                raise ConfigError(f"entities: unknown key {name}; known are {', '.join(_TABLES)}")
            tables.setdefault(name, []).extend(entries)
    return tables, declared


_TABLES = ("queue", "topic", "stream", "super_stream", "user")


def _tables(given: Path | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, Path):
        return given
    try:
        return tomllib.loads(given.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{given}: {error}") from error


@functools.cache
def _load_kernels() -> None:
    """Once for a process: from the cache, or compiled by other processes while reference implementations serve."""
    served_modules = kernels.served_modules()
    is_compiled = not kernels.missing(served_modules)
    kernels.load_in_background(served_modules).join(KERNELS_WITHIN_S if is_compiled else 0)
