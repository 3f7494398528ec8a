"""Two small languages: `shout` has equality without letter case, `whisper` is `rabbitmq` with `IS` for `=`."""

from __future__ import annotations

from dataclasses import replace

from headgate.language.amqp.rabbitmq import RABBITMQ
from headgate.language.dialect import Infix, Level
from headgate.language.parser import comparison
from headgate.language.tree import CompareOperator, OwnRules

SHOUT = replace(
    RABBITMQ,
    name="shout",
    rules=OwnRules("headgate_shout.semantics"),
    infix={symbol: RABBITMQ.infix[symbol] for symbol in ("AND", "OR", "=", "<>", "IN")},
    prefix={symbol: RABBITMQ.prefix[symbol] for symbol in ("(", "NOT")},
)

WHISPER = replace(
    RABBITMQ,
    name="whisper",
    infix={
        "AND": RABBITMQ.infix["AND"],
        "IS": Infix(Level.COMPARISON, Level.SUM, comparison(CompareOperator.EQUAL, Level.SUM)),
    },
)

_MURMUR = replace(RABBITMQ, name="another")
