"""Commands that answers of the server name are there."""

import re

import pytest

from headgate.protocols.rocketmq.remoting import not_supported


def named_commands():
    """Each command in what is said of the requests of RocketMQ that are not served."""
    for code in range(6_000):
        for first, more in re.findall(r"`headgate ([^`]+)`((?:, `\w+`)*(?: and `\w+`)?)", not_supported(code)):
            *group, name = first.split()
            yield from (" ".join([*group, each]) for each in [name, *re.findall(r"\w+", more.replace(" and ", ""))])


@pytest.mark.parametrize("command", sorted(set(named_commands())))
def test_commands_that_are_named_instead_of_requests_of_rocketmq_exist(run, command):
    assert f"Usage: headgate {command}" in run(*command.split(), "--help").out
