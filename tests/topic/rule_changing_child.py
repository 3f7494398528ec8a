"""A process that changes a rule and publishes under it, again and again, until it is killed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from headgate.log import Stream, Writer
from headgate.topic import Rule, RuleDefinition, Subscription, TopicEditor


def main(folder: Path) -> None:
    """Say each version when its change is confirmed, then publish two messages that hold its number."""
    with Writer.open(Stream.open(folder), now_ms=0) as writer:
        editor = TopicEditor(writer)
        first = 0
        if editor.history.has_subscription("s"):
            first = int(str(editor.history.rule("s", "r").rule.sql).removeprefix("version = ")) + 1
        for version in itertools.count(first):
            rule = Rule.of(RuleDefinition("r", sql=f"version = {version}", dialect="rabbitmq"))
            if version:
                editor.replace_rule("s", rule, now_ms=version)
            else:
                editor.create_subscription(Subscription("s", (rule,)), now_ms=0)
            print(version, flush=True)
            for _ in range(2):
                writer.append([(b"%d" % version, None)], now_ms=version)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
