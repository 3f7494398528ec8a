"""From a bound tree to instructions: a few integers per node, no machine code.

An instruction has the semantics of its node: its operation, and the family of its `ValueRules`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from headgate.evaluate import layout
from headgate.evaluate.assembler import (
    Assembler,
    NotCompiledError,
    Words,
    finite_bits,
    first_mask,
    first_word,
    fits_64_bits,
    in_buckets,
)
from headgate.evaluate.body.needles import searches
from headgate.evaluate.kinds import FAMILIES, KINDS
from headgate.language import Value, is_utf8
from headgate.language import tree as t
from headgate.message import AmqpType, AmqpValue, FieldReference, Section

_DEEPEST = 250

_ORDERS = {
    t.CompareOperator.EQUAL: layout.EQUAL,
    t.CompareOperator.LESS: layout.LESS,
    t.CompareOperator.LESS_OR_EQUAL: layout.LESS | layout.EQUAL,
    t.CompareOperator.GREATER: layout.GREATER,
    t.CompareOperator.GREATER_OR_EQUAL: layout.GREATER | layout.EQUAL,
}
_OPERATIONS: dict[enum.Enum, int] = {
    operator: getattr(layout, operator.name)
    for kind in (t.ArithmeticOperator, t.Function, t.SpecialNumber, t.TextTestKind)
    for operator in kind
}
"""`layout.py` names operations as the tree does."""
_WITHOUT_ERRORS = (t.ValueRules.RABBITMQ, t.ValueRules.CORRELATION)
_SIDES_DIFFER = (layout.RULES_ROCKETMQ, layout.RULES_CESQL)
"""Families whose comparisons ask which operand is on which side."""
_ALL_MEMBERS = (t.ValueRules.CESQL,)
"""Rules by which IN evaluates all its members."""
_Outcome: TypeAlias = tuple[int, int, int]
"""The wanted outcome, where to go on if it occurs, and where if not."""


class Compiler(Assembler):
    """Makes the program of one tree, or one of many trees with an entry for each."""

    def __init__(self, tree: t.Node) -> None:
        if any(getattr(node, "rules", t.ValueRules.RABBITMQ) not in FAMILIES for node in t.walk(tree)):
            raise NotCompiledError
        found = {node.rules for node in t.walk(tree) if isinstance(node, t.Field)}
        rules = {one for one in found if isinstance(one, t.ValueRules)} or {t.ValueRules.RABBITMQ}
        if len({KINDS[one] for one in rules}) > 1:
            raise NotCompiledError
        super().__init__(min(rules, key=lambda one: one.name))
        self.tree = tree
        self.depth = 0
        self.asked: set[FieldReference] = set()
        self.element = 0
        self.around = 0

    def program(self) -> Words:
        """The program of the tree."""
        self.asked = _asked_with_default(self.tree)
        self._fill_slots(self.tree)
        slots = len(self.registers)
        self._make_room_for_body()
        reads_late = any(_needs_application_properties(field) for field in self.slots)
        exact = self._exact_code(reads_late)
        select = exact if reads_late and self._is_an_order() else self._select_code()
        if any(field.section is Section.FOOTER for field in self.slots):
            select, exact = (self.emit(layout.READ_FOOTER, 0, entry, 0) for entry in (select, exact))
        return self.assemble(select, exact, slots)

    def predicates(self, trees: Sequence[t.Node]) -> tuple[Words, tuple[int, ...], int]:
        """One program, where the code of each tree begins, and how many registers are slots; see `Predicates`."""
        self.asked = {reference for tree in trees for reference in _asked_with_default(tree)}
        compiled = [self._has_slots(tree) for tree in trees]
        slots = len(self.registers)
        self._make_room_for_body()
        entries = tuple(self._entry(tree) if has_slots else -1 for tree, has_slots in zip(trees, compiled, strict=True))
        return self.assemble(0, 0, slots), entries, slots

    def _has_slots(self, tree: t.Node) -> bool:
        try:
            self._fill_slots(tree)
        except NotCompiledError:
            return False
        # Whoever runs predicates reads no footer.
        return not any(isinstance(node, t.Field) and node.reference.section is Section.FOOTER for node in t.walk(tree))

    def _fill_slots(self, tree: t.Node) -> None:
        # Events in bodies are left to the reference.
        in_body = {id(node.member) for node in t.walk(tree) if isinstance(node, t.Attribute)}
        for node in t.walk(tree):
            if isinstance(node, t.Field) and id(node) not in in_body:
                self.slot(self._stored(node.reference))

    def _make_room_for_body(self) -> None:
        if any(_needs_body(field) for field in self.slots):
            self.body_scratch = self.scratch(layout.BODY_SCRATCH_REGISTERS)

    def _stored(self, reference: FieldReference) -> FieldReference:
        """The field to read from a message: without references, and without a default where its existence matters."""
        if _needs_body(reference):
            return reference
        if reference.path and reference.section is Section.HEADER:
            # Header fields are read as their standard types, which have no elements.
            raise NotCompiledError
        if reference.path:
            return replace(reference, path=())
        return replace(reference, default=None) if reference in self.asked else reference

    def _entry(self, tree: t.Node) -> int:
        self.depth = 0
        try:
            return self.verdict(tree)
        except NotCompiledError:
            return -1

    def _is_an_order(self) -> bool:
        """Whether the filter is one comparison by order, which as a rule a good part of the messages passes.

        A mispredicted jump then costs more (8 ns) than the check of the messages that do not match (1 ns).
        """
        return isinstance(self.tree, t.Compare) and not self.tree.operator.is_equality

    def _select_code(self) -> int:
        """Conjuncts that need less of the message come first: any that is not true decides."""
        early: list[t.Node] = []
        late: list[t.Node] = []
        of_body: list[t.Node] = []
        for conjunct in t.conjuncts(self.tree):
            fields = [node.reference for node in t.walk(conjunct) if isinstance(node, t.Field)]
            # Fields without a slot are left to the reference.
            if any(_needs_body(field) and field in self.slots for field in fields):
                of_body.append(conjunct)
            else:
                (late if any(map(_needs_application_properties, fields)) else early).append(conjunct)
        entry = self.emit(layout.CHECK, 0, layout.END_TRUE, 0)
        for conjunct in reversed(of_body):
            entry = self.condition(conjunct, layout.TRUE, entry, layout.END_FALSE, final=True)
        if of_body:
            entry = self.emit(layout.READ_BODY, layout.TRUE, entry, 0)
        for needles in searches(of_body):
            rows = [word for needle in needles for word in layout.NeedleBlock(self.text(needle), len(needle))]
            entry = self.emit(
                layout.SEARCH_BODY, layout.TRUE, entry, layout.END_FALSE, 0, self.table(rows), len(needles)
            )
        for conjunct in reversed(late):
            entry = self.condition(conjunct, layout.TRUE, entry, layout.END_FALSE, final=True)
        if any(map(_needs_application_properties, self.slots)):
            entry = self.emit(layout.READ_APPLICATION_PROPERTIES, 0, entry, 0)
        for conjunct in reversed(early):
            entry = self.condition(conjunct, layout.TRUE, entry, layout.END_FALSE, final=True)
        return entry

    def _exact_code(self, reads_late: bool) -> int:
        """Is it no message? Else, the verdict."""
        entry = self.verdict(self.tree)
        if any(map(_needs_body, self.slots)):
            entry = self.emit(layout.READ_BODY, layout.TRUE, entry, 0)
        if reads_late:
            entry = self.emit(layout.READ_APPLICATION_PROPERTIES, 0, entry, 0)
        return self.emit(layout.CHECK, 0, entry, 0)

    def verdict(self, node: t.Node) -> int:
        """Code that ends with the exact verdict of `node`, once the slots are filled; its first instruction."""
        positive, negated = _positive(node)
        if not negated and not isinstance(positive, t.And | t.Or):
            return self._predicate(positive, layout.END, 0, 0)
        if not _may_fail(positive):
            entry = self.condition(node, layout.FALSE, layout.END_FALSE, layout.END_UNKNOWN)
            return self.condition(node, layout.TRUE, layout.END_TRUE, entry)
        register = self.register(layout.ABSENT, 0)
        entry = self.emit(layout.TRUTH, layout.END, 0, 0, register)
        junction = positive if isinstance(positive, t.And | t.Or) else t.Or((positive,))
        return self._collected(junction, register, entry, negated=negated)

    # -- truth: jump to `wanted_at` if the node's truth is `wanted`, else to `otherwise`; gives the entry --------------

    def condition(self, node: t.Node, wanted: int, wanted_at: int, otherwise: int, *, final: bool = False) -> int:
        """Code that asks whether the truth of `node` is `wanted`; its first instruction.

        `final`: at `otherwise` the filter is not true, and it does not matter whether it is false or unknown.
        Raises NotCompiledError.
        """
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NotCompiledError
        node, negated = _positive(node)
        if negated:
            wanted = 1 - wanted
        if not isinstance(node, t.And | t.Or):
            entry = self._predicate(node, wanted, wanted_at, otherwise)
        elif isinstance(node, t.And) != (wanted == layout.TRUE):
            # The truth that decides is asked for: operands are looked at as far as the language looks at them.
            entry = otherwise
            for operand in reversed(node.operands):
                entry = self.condition(operand, wanted, wanted_at, entry, final=final and entry == otherwise)
        elif final or not any(_may_fail(operand) for operand in node.operands[1:]):
            entry = wanted_at
            for operand in reversed(node.operands):
                entry = self.condition(operand, wanted, entry, otherwise, final=final)
        else:
            register = self.register(layout.ABSENT, 0)
            entry = self.emit(layout.TRUTH, wanted, wanted_at, otherwise, register)
            entry = self._collected(node, register, entry)
        self.depth -= 1
        return entry

    def _collected(self, junction: t.And | t.Or, register: int, then: int, *, negated: bool = False) -> int:
        """Code that puts the truth of an AND or OR, or its negation, into a register, operands from left to right.

        An operand after an unknown one is still evaluated, because it may raise an error.
        """
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NotCompiledError
        decisive = isinstance(junction, t.Or) is not negated
        entry = then
        for number, operand in reversed(list(enumerate(junction.operands))):
            operand, opposite = _positive(operand)
            wanted = layout.COLLECT | register << layout.COLLECT_SHIFT
            wanted |= layout.COLLECT_DECISIVE * decisive
            wanted |= layout.COLLECT_NEGATED * (opposite is not negated)
            wanted |= layout.COLLECT_FIRST * (number == 0)
            if isinstance(operand, t.And | t.Or):
                inner = self.register(layout.ABSENT, 0)
                entry = self.emit(layout.TRUTH, wanted, entry, then, inner)
                entry = self._collected(operand, inner, entry)
            else:
                entry = self._predicate(operand, wanted, entry, then)
        self.depth -= 1
        return entry

    def _predicate(self, node: t.Node, wanted: int, wanted_at: int, otherwise: int) -> int:
        """A leaf of the logic that is not negated. With `wanted` STORE its truth goes into the register `otherwise`."""
        outcome = (wanted, wanted_at, otherwise)
        match node:
            case t.Compare():
                return self._comparison(node, outcome)
            case t.In():
                return self._membership(node, outcome)
            case t.Like(subject=subject, pattern=pattern, rules=rules):
                return self._likeness(subject, pattern, FAMILIES[rules], outcome)
            case t.AnyElement():
                return self._any_element(node, outcome)
            case t.TextTest(text=b""):
                return self._predicate(t.Constant(False), *outcome)
            case t.TextTest(kind=kind, subject=subject, text=text, negated=negated):
                operands = (self.text(text), len(text), int(negated))
                return self._unary(_OPERATIONS[kind], subject, outcome, *operands, family=layout.RULES_ROCKETMQ)
            case t.BooleanCast(operand=operand):
                return self._unary(layout.CAST_BOOLEAN, operand, outcome, family=layout.RULES_ROCKETMQ)
            case t.IsNull(operand=operand):
                return self._unary(layout.IS_UNKNOWN, operand, outcome)
            case t.Exists(operand=t.Element()):
                return self._unary(layout.IS_PRESENT, node.operand, outcome)
            case t.Exists(operand=t.Field(reference=reference)):
                if reference.path and not _needs_body(reference):
                    return self._unary(layout.IS_PRESENT, node.operand, outcome)
                return self.emit(layout.IS_PRESENT, *outcome, self.slots[self._stored(reference)])
            case t.CompareSpecial(operator=operator, operand=operand, number=number):
                asked_for = (_OPERATIONS[number], _ORDERS[operator])
                return self._unary(layout.COMPARE_SPECIAL, operand, outcome, *asked_for, family=layout.RULES_AMQP)
            case t.HasSimple(operand=t.Field(reference=reference)) if reference.key is not None:
                return self._unary(layout.IS_SIMPLE, node.operand, outcome)
            case t.Exists(operand=t.Attribute() as attribute):
                return self.emit(layout.HAS_ATTRIBUTE, *outcome, *self._slots_of(attribute), family=layout.RULES_CESQL)
            case t.Apply(function="BOOL", arguments=(operand,)):
                return self._unary(layout.TRUTH, operand, outcome, family=layout.RULES_CESQL)
            case t.Attribute() | t.Apply(function="INT"):
                return self._unary(layout.TRUTH, node, outcome)
            case t.Constant() | t.Field() | t.Now() | t.Arithmetic() | t.Sign() | t.Call() | t.Concatenate():
                return self._unary(layout.TRUTH, node, outcome)
            case _:
                raise NotCompiledError

    def _any_element(self, node: t.AnyElement, outcome: _Outcome) -> int:
        """A loop over the elements of an array, which collects the truth of the condition for each."""
        condition, negated = _positive(node.condition)
        array = self.register_for(node.array)
        result, cursor, element = (self.register(layout.ABSENT, 0) for _ in range(3))
        around = self.around or self.body_scratch
        after = self.emit(layout.TRUTH, *outcome, result)
        advance = self.emit(layout.NEXT_ELEMENT, layout.TRUE, 0, after, cursor, 0, 0, around)
        instruction = self.code[-1]
        self.element_paths.append((instruction, _element_path(condition), element))
        given = self.element, self.around
        self.element, self.around = element, cursor
        wanted = layout.COLLECT | layout.COLLECT_DECISIVE | layout.COLLECT_NEGATED * negated
        entry = self._predicate(condition, wanted | result << layout.COLLECT_SHIFT, advance, after)
        self.element, self.around = given
        instruction[layout.ON_WANTED // 8] = entry
        return self.emit(layout.START_ELEMENTS, layout.TRUE, advance, after, array, result, cursor, around)

    def _unary(
        self, operation: int, operand: t.Node, outcome: _Outcome, *operands: int, family: int = layout.RULES_RABBITMQ
    ) -> int:
        register = self.register_for(operand)
        entry = self.emit(operation, *outcome, register, *operands, family=family)
        return self.value(operand, register, entry)

    def _comparison(self, node: t.Compare, outcome: _Outcome) -> int:
        left, right, operator, family = node.left, node.right, node.operator, FAMILIES[node.rules]
        if isinstance(left, t.Constant) and not isinstance(right, t.Constant) and family not in _SIDES_DIFFER:
            left, right, operator = right, left, operator.mirrored
        orders = _ORDERS[operator]
        register = self.register_for(left)
        if isinstance(right, t.Constant) and (operands := self._constant_operands(right.value, orders)) is not None:
            entry = self.emit(operands[0], *outcome, register, *operands[1:], family=family)
        else:
            other = self.register_for(right)
            entry = self.emit(layout.COMPARE, *outcome, register, other, orders, family=family)
            entry = self.value(right, other, entry)
        return self.value(left, register, entry)

    def _constant_operands(self, value: Value, orders: int) -> tuple[int, ...] | None:
        """Operation and operands B … of a comparison with a constant; None: it goes through a register."""
        if isinstance(value, bool):
            return (layout.EQUAL_BOOLEAN, int(value)) if orders == layout.EQUAL else None
        if isinstance(value, AmqpValue) and value.type in (AmqpType.INT, AmqpType.LONG):
            kind = layout.INT32 if value.type is AmqpType.INT else layout.INTEGER
            return layout.COMPARE_INTEGER, value.value, orders, kind
        if isinstance(value, int):
            return (layout.COMPARE_INTEGER, value, orders, layout.INTEGER) if fits_64_bits(value) else None
        if isinstance(value, AmqpValue) and value.type is AmqpType.DOUBLE and value.value != 0:
            # Zero has two signs, which only the slow way tells apart.
            return layout.COMPARE_FLOAT, finite_bits(value.value), orders
        if isinstance(value, float):
            return layout.COMPARE_FLOAT, finite_bits(value), orders
        if orders == layout.EQUAL and isinstance(value, bytes):
            return layout.EQUAL_BYTES, first_word(value), len(value), first_mask(value), self.text(value)
        return None

    def _membership(self, node: t.In, outcome: _Outcome) -> int:
        subject, members, family = node.subject, node.members, FAMILIES[node.rules]
        register = self.register_for(subject)
        texts = [
            member.value for member in members if isinstance(member, t.Constant) and isinstance(member.value, bytes)
        ]
        if len(texts) == len(members):
            texts, bounds = in_buckets(texts)
            rows = list(bounds)
            for text in texts:
                rows += layout.MemberBlock(first_word(text), first_mask(text), len(text), self.text(text))
            count = 1 - len(bounds) if bounds else len(texts)
            entry = self.emit(layout.AMONG_BYTES, *outcome, register, self.table(rows), count, family=family)
        else:
            are_plain = all(isinstance(member, t.Constant | t.Field) for member in members)
            if _may_fail(node) and not are_plain and node.rules not in _ALL_MEMBERS:
                # Members are evaluated as far as they are needed.
                raise NotCompiledError
            others = [self.register_for(member) for member in members]
            entry = self.emit(layout.AMONG, *outcome, register, self.table(others), len(others), family=family)
            for member, other in zip(reversed(members), reversed(others), strict=True):
                entry = self.value(member, other, entry)
        return self.value(subject, register, entry)

    def _likeness(self, subject: t.Node, pattern: t.LikePattern, family: int, outcome: _Outcome) -> int:
        register = self.register_for(subject)
        prefix, suffix = pattern.prefix, pattern.suffix
        if pattern.shape is t.LikeShape.GENERAL:
            rows: list[int] = []
            for element in pattern.elements:
                match element:
                    case t.LikeWildcard.ANY:
                        rows += layout.ElementBlock(layout.ANY_TEXT, 0)
                    case t.LikeWildcard.ONE:
                        rows += layout.ElementBlock(layout.ONE_CHARACTER, 0)
                    case _:
                        if not is_utf8(element):
                            raise NotCompiledError
                        rows += layout.ElementBlock(len(element), self.text(element))
            operands = (register, self.table(rows), len(pattern.elements))
            entry = self.emit(layout.LIKE_GENERAL, *outcome, *operands, family=family)
        elif pattern.shape is t.LikeShape.EXACT:
            entry = self.emit(layout.LIKE_EXACT, *outcome, register, self.text(prefix), len(prefix), family=family)
        else:
            affixes = (self.text(prefix), len(prefix), self.text(suffix), len(suffix))
            entry = self.emit(layout.LIKE_AFFIXES, *outcome, register, *affixes, family=family)
        return self.value(subject, register, entry)

    # -- values: code that puts a node's value into a register, then continues at `then`
    # ---------------------------------

    def register_for(self, node: t.Node) -> int:
        """The register that has, or is to take, the value of `node`."""
        match node:
            case t.Field(reference=reference) if _needs_body(reference) or not (
                reference.path or reference in self.asked
            ):
                return self.slots[reference]
            case t.Element():
                return self.element
            case t.Constant(value=value):
                return self.constant(value)
            case t.Now():
                if self.now_register < 0:
                    self.now_register = self.register(layout.INTEGER, 0) // layout.REGISTER_BYTES
                return self.now_register * layout.REGISTER_BYTES
            case _:
                return self.register(layout.ABSENT, 0)

    def value(self, node: t.Node, register: int, then: int) -> int:
        """Code that computes `node` into `register`; `then` itself for a value that is in its register already."""
        match node:
            case t.Field(reference=reference):
                return self._field(reference, register, then)
            case t.Constant() | t.Now() | t.Element():
                return then
        self.depth += 1
        if self.depth > _DEEPEST:
            raise NotCompiledError
        match node:
            case t.Arithmetic():
                entry = self._binary(node, register, then)
            case t.Sign(negative=negative, operand=operand, rules=rules):
                source = self.register_for(operand)
                operation = layout.NEGATE if negative else layout.KEEP_NUMBER
                entry = self.emit(operation, 0, then, register, source, family=FAMILIES[rules])
                entry = self.value(operand, source, entry)
            case t.Call():
                entry = self._call(node, register, then)
            case t.Attribute():
                slots = self._slots_of(node)
                entry = self.emit(layout.ATTRIBUTE, 0, then, register, *slots, family=layout.RULES_CESQL)
            case t.Apply(function="INT", arguments=(argument,)):
                source = self.register_for(argument)
                entry = self.emit(layout.CAST_INTEGER, 0, then, register, source, family=layout.RULES_CESQL)
                entry = self.value(argument, source, entry)
            case t.Concatenate(left=left, right=right):
                first, second = self.register_for(left), self.register_for(right)
                operands = (first, second, 0, self.scratch(layout.SCRATCH_REGISTERS))
                entry = self.emit(layout.CONCATENATE, 0, then, register, *operands, family=layout.RULES_AMQP)
                entry = self.value(left, first, self.value(right, second, entry))
            case t.And() | t.Or() if _may_fail(node):
                entry = self._collected(node, register, then)
            case t.And() | t.Or():
                entry = self._truth_of_many(node, register, then)
            case _:
                positive, negated = _positive(node)
                if negated:
                    source = self.register_for(positive)
                    then = self.emit(layout.OPPOSITE, 0, then, register, source)
                    entry = self.value(positive, source, then)
                elif isinstance(positive, t.And | t.Or):
                    entry = self.value(positive, register, then)
                else:
                    entry = self._predicate(positive, layout.STORE, then, register)
        self.depth -= 1
        return entry

    def _slots_of(self, attribute: t.Attribute) -> tuple[int, int, int]:
        """The slots of the content type and of the two fields of an attribute, which may be one."""
        places = [field for field in (attribute.content_type, *attribute.fields) if isinstance(field, t.Field)]
        content_type, first, second = (self.slots[each.reference] for each in (*places, places[-1])[:3])
        return content_type, first, second

    def _field(self, reference: FieldReference, register: int, then: int) -> int:
        """Code that follows the references of a field, or puts its default in place; none if its slot has the value."""
        if _needs_body(reference):
            return then
        if reference.path:
            rows: list[int] = []
            for step in reference.path:
                rows += (
                    layout.StepBlock(step, 0, 0)
                    if isinstance(step, int)
                    else layout.StepBlock(-1, len(step), self.text(step))
                )
            scratch = self.scratch(layout.FOLLOW_SCRATCH_REGISTERS)
            operands = (self.slots[self._stored(reference)], self.table(rows), len(reference.path), scratch)
            return self.emit(layout.FOLLOW, 0, then, register, *operands, family=layout.RULES_AMQP)
        if reference in self.asked:
            slot, default = self.slots[self._stored(reference)], self.constant(reference.default)
            return self.emit(layout.OR_DEFAULT, 0, then, register, slot, default, family=layout.RULES_AMQP)
        return then

    def _call(self, node: t.Call, register: int, then: int) -> int:
        sources = [self.register_for(argument) for argument in node.arguments]
        if node.function in (t.Function.LOWER, t.Function.UPPER):
            operands = [sources[0], 0, 0, self.scratch(layout.SCRATCH_REGISTERS)]
        else:
            operands = [*sources, -1] if len(sources) < 3 else sources
        entry = self.emit(_OPERATIONS[node.function], 0, then, register, *operands, family=layout.RULES_AMQP)
        for argument, source in zip(reversed(node.arguments), reversed(sources), strict=True):
            entry = self.value(argument, source, entry)
        return entry

    def _binary(self, node: t.Arithmetic, register: int, then: int) -> int:
        first, second = self.register_for(node.left), self.register_for(node.right)
        operation, family = _OPERATIONS[node.operator], FAMILIES[node.rules]
        operands = [first, second]
        if operation == layout.ADD and family == layout.RULES_SERVICE_BUS:
            operands += [0, self.scratch(layout.SCRATCH_REGISTERS)]
        entry = self.emit(operation, 0, then, register, *operands, family=family)
        return self.value(node.left, first, self.value(node.right, second, entry))

    def _truth_of_many(self, node: t.And | t.Or, register: int, then: int) -> int:
        """All operands, then combined from left to right; nothing has an effect that a short circuit would spare."""
        operation = layout.BOTH if isinstance(node, t.And) else layout.EITHER
        sources = [self.register_for(operand) for operand in node.operands]
        entry = then
        for position in range(len(sources) - 1, 0, -1):
            before = sources[0] if position == 1 else register
            entry = self.emit(operation, 0, entry, register, before, sources[position])
        for operand, source in zip(reversed(node.operands), reversed(sources), strict=True):
            entry = self.value(operand, source, entry)
        return entry


def _asked_with_default(tree: t.Node) -> set[FieldReference]:
    """Fields with a default whose existence matters: their slots must tell a missing field from its default."""
    asked = (node.operand for node in t.walk(tree) if isinstance(node, t.Exists))
    return {field.reference for field in asked if isinstance(field, t.Field) and field.reference.default is not None}


def _positive(node: t.Node) -> tuple[t.Node, bool]:
    """`node` without NOT, `<>`, NOT IN, NOT LIKE and IS NOT NULL, in any number, and whether these negate it."""
    negated = False
    while True:
        match node:
            case t.Not(operand=operand):
                node = operand
            case (
                t.Compare(operator=t.CompareOperator.NOT_EQUAL) | t.CompareSpecial(operator=t.CompareOperator.NOT_EQUAL)
            ):
                node = replace(node, operator=t.CompareOperator.EQUAL)
            case t.In(negated=True) | t.Like(negated=True) | t.IsNull(negated=True):
                node = replace(node, negated=False)
            case _:
                return node, negated
        negated = not negated


def _may_fail(node: t.Node) -> bool:
    """Whether evaluating the node may be an error in its language."""
    return any(
        isinstance(part, t.Attribute | t.Apply)
        or (isinstance(part, t.Compare | t.In | t.Like | t.Arithmetic | t.Sign) and part.rules not in _WITHOUT_ERRORS)
        for part in t.walk(node)
    )


def _element_path(condition: t.Node) -> tuple[bytes | int, ...]:
    """The path in an element that a condition looks at."""
    return next(operand.path for operand in t.children(condition) if isinstance(operand, t.Element))


def _needs_application_properties(field: FieldReference) -> bool:
    return field.section is Section.APPLICATION_PROPERTIES


def _needs_body(field: FieldReference) -> bool:
    return field.section is Section.DATA
