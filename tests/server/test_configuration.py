from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import ConfigError
from headgate.server.configuration import load_settings
from headgate.server.settings import ServerSettings


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headgate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_file_and_environment_the_defaults_hold() -> None:
    settings = load_settings(None, {"HEADGATE_ROOT": "elsewhere", "HEADGATE_SERVER": "host:1"})
    assert settings == ServerSettings()
    assert (settings.listeners.amqp, settings.listeners.stream) == (5672, 5552)
    assert (settings.listeners.stomp, settings.listeners.http) == (61613, 15672)


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        root = "data"
        [listeners]
        amqp = 0
        stomp = "off"
        [[user]]
        name = "anna"
        password = "secret"
        permissions = { read = ".*" }
        [[super_stream]]
        name = "orders"
        partitions = 3
        """,
    )
    settings = load_settings(path, {})
    assert (settings.root, settings.listeners.amqp, settings.listeners.stomp) == ("data", 0, "off")
    assert settings.listeners.stream == 5552
    assert settings.user[0].permissions.read == ".*" and settings.user[0].permissions.write == ""
    assert settings.super_stream[0].partitions == 3


def test_the_environment_stands_before_the_file_and_the_command_line_before_both(tmp_path: Path) -> None:
    path = written(tmp_path, 'root = "file"\n[listeners]\namqp = 1\nstream = 2\n[authentication]\nanonymous = true\n')
    environment = {
        "HEADGATE_SERVER__LISTENERS__AMQP": "off",
        "HEADGATE_SERVER__ROOT": "environment",
        "HEADGATE_SERVER__AUTHENTICATION__ANONYMOUS": "false",
        "HEADGATE_SERVER__AUTHENTICATION__DEFAULT_PASSWORD": "12345",
        "HEADGATE_SERVER__TIMEOUTS__LINGER_S": "0.5",
        "HEADGATE_SERVER__ADVERTISED__PORT": "7000",
    }
    settings = load_settings(path, environment)
    assert (settings.root, settings.listeners.amqp, settings.listeners.stream) == ("environment", "off", 2)
    assert settings.authentication.anonymous is False
    assert settings.authentication.default_password == "12345"
    assert (settings.timeouts.linger_s, settings.advertised.port) == (0.5, 7000)
    assert load_settings(path, environment, root=Path("option")).root == "option"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[queue]]\nname = "a"\n[queue.delivery]\nlock = 5', "queue 'a': not a topic or queue: .*`lock`"),
        ('[[queue]]\nname = "a"\n[queue.delivery]\nlock_ms = 5', r"lock_ms is 5; expected 1000 to"),
        ('[[topic]]\nname = "a"\n[topic.settings]\nstatus = "off"', "topic 'a': not a topic or queue: .*'off'"),
        ('[[topic]]\nname = "a"\n[[queue]]\nname = "A"', "topic 'a' is there twice"),
        (
            '[[topic]]\nname = "a"\n[[topic.subscription]]\nname = "s"\nrule = [{ name = "r", sql = "a =" }]',
            "topic 'a', subscription 's', rule 'r'",
        ),
    ],
)
def test_a_wrong_topic_or_queue_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_settings(written(tmp_path, text), {})


def test_a_table_that_is_not_in_the_file_can_come_from_the_environment() -> None:
    environment = {"HEADGATE_SERVER__TLS__CERTIFICATE": "c.pem", "HEADGATE_SERVER__TLS__KEY": "k.pem"}
    settings = load_settings(None, environment)
    assert settings.tls is not None and settings.tls.key == "k.pem"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listener = {}", "unknown key listener; known are root, listeners"),
        ("[listeners]\namqps1 = 5", "unknown key listeners.amqps1; known are host, amqp, "),
        (
            '[[user]]\nname = "a"\npassword = "b"\n[user.permissions]\nreed = "x"',
            "unknown key user[0].permissions.reed",
        ),
        ("[tls]\ncertificate = 'c'", "tls: Object missing required field `key`"),
        ("[listeners]\namqp = 70000", "listeners.amqp: Expected `int` <= 65535"),
        ('[listeners]\namqp = "5672"', "listeners.amqp: found '5672', expected a number or off"),
        (
            '[tls]\ncertificate = "c"\nkey = "k"\nverify_client = "yes"',
            "tls.verify_client: found 'yes', expected no or",
        ),
        ('[log]\nformat = "xml"', "log.format: found 'xml', expected text or json"),
        ("[limits]\nlinks = 0", "limits.links: Expected `int` >= 1"),
        ("[limits]\nsessions = 65537", "limits.sessions: Expected `int` <= 65536"),
        ("[timeouts]\nhandshake_s = 0", "timeouts.handshake_s: Expected `float` > 0"),
        ("[filters]\ndialect = 'klingon'", "filters.dialect: "),
        ("[tls]\ncertificate='c'\nkey='k'\nverify_client='required'", "tls.verify_client needs tls.ca"),
        ("[[super_stream]]\nname = 's'", "super_stream 's': expected either `partitions` or `binding_keys`"),
        ("[[stream]]\nname = 's'\n[[stream]]\nname = 's'", "stream 's' is there twice"),
        ("[[rocketmq.topic]]\nname = 'a.b'", "rocketmq.topic 'a.b': The specified topic[a.b] contains illegal"),
        ("[[rocketmq.topic]]\nname = 's'\n[[rocketmq.topic]]\nname = 's'", "rocketmq.topic 's' is there twice"),
        ("[[rocketmq.topic]]\nname = 's'\naccepts = ['lite']", "rocketmq.topic[0].accepts[0]: found 'lite'"),
        ("[[rocketmq.group]]\nname = 'g'\nbackoff_ms = []", "rocketmq.group 'g': g: backoff has 0 times"),
        ("[[rocketmq.group]]\nname = 'g'\nmax_attempts = 0", "rocketmq.group[0].max_attempts: Expected `int` >= 1"),
        ("[rocketmq]\ncreate_topics = 'yes'", "rocketmq.create_topics: found 'yes', expected never or producers or"),
        ("root = ", "not TOML: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, {})
    assert str(caught.value).startswith(f"{path}: {expected}")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HEADGATE_SERVER__LISTENERS__MQTT", "1", "unknown key mqtt; known are host, amqp"),
        ("HEADGATE_SERVER__LISTENERS__AMQP", "many", "found 'many', expected a number or off"),
        ("HEADGATE_SERVER__LOG__LEVEL", "loud", "found 'loud', expected debug or info or warning or error"),
        ("HEADGATE_SERVER__LISTENERS", "1", "listeners is a table; name one of its keys"),
        ("HEADGATE_SERVER__ROOT__X", "1", "root is a value, not a table"),
        ("HEADGATE_SERVER__USER", "[]", "user is an array of tables, which stands in the file only"),
        ("HEADGATE_SERVER__USER__NAME", "a", "user is an array of tables, which stands in the file only"),
        ("HEADGATE_SERVER__LIMITS__LINKS", "-1", "found '-1', Expected `int` >= 1"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(variable: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {variable: text})
    assert str(caught.value).startswith(f"{variable}: {expected}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_settings(tmp_path / "nowhere.toml", {})


def test_a_value_in_the_place_of_a_table_is_named_though_the_environment_has_keys_of_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="listeners: Expected `object`, got `int`"):
        load_settings(written(tmp_path, "listeners = 5"), {"HEADGATE_SERVER__LISTENERS__AMQP": "1"})


def test_half_a_table_from_the_environment_names_the_rest() -> None:
    with pytest.raises(ConfigError, match="tls: Object missing required field `key`"):
        load_settings(None, {"HEADGATE_SERVER__TLS__CERTIFICATE": "c.pem"})
