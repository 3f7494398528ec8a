"""The operations without a short way in the interpreter: compiled once, linked into every kernel that interprets.

What is common to all languages is here; the rest goes to a family of values (`values/amqp`, `values/cesql`,
`values/rocketmq`, `values/servicebus`).
"""

from __future__ import annotations

from headgate.evaluate import layout
from headgate.evaluate.layout import REGISTER
from headgate.evaluate.values.amqp.kernel import amqp_predicate, amqp_value
from headgate.evaluate.values.cesql.kernel import cesql_predicate, cesql_value
from headgate.evaluate.values.kernel import (
    among,
    arithmetic,
    compare,
    like_bytes,
    like_general,
    logic,
    signed,
    truth_of,
)
from headgate.evaluate.values.rocketmq.kernel import rocketmq_negate, rocketmq_predicate
from headgate.evaluate.values.servicebus.kernel import (
    correlation_predicate,
    servicebus_arithmetic,
    servicebus_predicate,
    servicebus_signed,
)
from headgate.kernels.compiler import helper, inlined, shared
from headgate.kernels.memory import kept_apart, load_i64


@inlined
def _predicate(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """Truth of any predicate."""
    kind = load_i64(register)
    b = load_i64(at + layout.B)
    c = load_i64(at + layout.C)
    if operation == layout.COMPARE_INTEGER:
        return compare(register, layout.INTEGER, b, 0, c)
    if operation == layout.COMPARE_FLOAT:
        return compare(register, layout.FLOAT, b, 0, c)
    if operation == layout.COMPARE:
        other = registers + b
        return compare(
            register,
            load_i64(other),
            load_i64(other + REGISTER.payload),
            load_i64(other + REGISTER.length),
            c,
        )
    if operation == layout.AMONG:
        return among(register, program + b, c, registers)
    if operation == layout.TRUTH:
        return truth_of(register)
    if operation == layout.IS_UNKNOWN:
        return layout.TRUE if kind < layout.FIRST_KNOWN else layout.FALSE
    if operation == layout.IS_PRESENT:
        return layout.TRUE if kind != layout.ABSENT else layout.FALSE
    if operation == layout.IS_SIMPLE:
        return layout.TRUE if kind == layout.NULL or kind >= layout.FIRST_KNOWN else layout.FALSE
    if operation <= layout.EQUAL_BOOLEAN:
        # What can only be equal to bytes or to a boolean, and is neither.
        return layout.UNKNOWN if kind < layout.FIRST_KNOWN else layout.FALSE
    if kind != layout.BYTES:
        return layout.UNKNOWN
    text = load_i64(register + REGISTER.payload)
    length = load_i64(register + REGISTER.length)
    if operation == layout.LIKE_GENERAL:
        return like_general(text, length, program + b, c, pool)
    return like_bytes(operation, at, text, length, pool)


@inlined
def _value(operation: int, at: int, register: int, registers: int) -> int:
    """A value operation: TRUE when done, UNDECIDED if only the reference can say."""
    second = registers + load_i64(at + layout.B)
    result = registers + load_i64(at + layout.OTHERWISE)
    done = True
    if operation < layout.NEGATE:
        done = arithmetic(operation, register, second, result)
    elif operation <= layout.KEEP_NUMBER:
        done = signed(operation, register, result)
    else:
        logic(operation, register, second, result)
    return layout.TRUE if done else layout.UNDECIDED


@helper
def _foreign(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """As `operate`, by the rules of the other languages than RabbitMQ's."""
    kept_apart()
    family = load_i64(at + layout.RULES)
    if operation >= layout.FIRST_VALUE_OPERATION:
        result = registers + load_i64(at + layout.OTHERWISE)
        if family == layout.RULES_AMQP:
            return amqp_value(operation, at, program, registers, pool)
        if family == layout.RULES_CESQL:
            return cesql_value(operation, at, register, registers)
        if family == layout.RULES_ROCKETMQ:
            return rocketmq_negate(register, result)
        if operation < layout.NEGATE:
            second = registers + load_i64(at + layout.B)
            return servicebus_arithmetic(operation, register, second, result, registers + load_i64(at + layout.D))
        return servicebus_signed(operation, register, result)
    if family == layout.RULES_ROCKETMQ:
        return rocketmq_predicate(operation, at, register, registers, pool)
    if family == layout.RULES_CESQL:
        return cesql_predicate(operation, at, register, program, registers, pool)
    if family == layout.RULES_CORRELATION:
        return correlation_predicate(operation, at, register, registers, pool)
    if family == layout.RULES_AMQP:
        return amqp_predicate(at, register)
    return servicebus_predicate(operation, at, register, program, registers, pool)


@shared
def operate(operation: int, at: int, register: int, program: int, registers: int, pool: int) -> int:
    """Run an operation without a short way in `interpret`: gives a truth; for values TRUE (done), ERROR or UNDECIDED.

    It is one function, since each call in `interpret` costs time for every message, whether it is made or not.
    """
    kept_apart()
    if load_i64(at + layout.RULES) != layout.RULES_RABBITMQ:
        return _foreign(operation, at, register, program, registers, pool)
    if operation >= layout.FIRST_VALUE_OPERATION:
        return _value(operation, at, register, registers)
    return _predicate(operation, at, register, program, registers, pool)
