"""The table of all paths into the body that a program asks for: a tree of their steps, as `layout.py` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.evaluate import layout


@dataclass(slots=True)
class _Branch:
    register: int = -1
    steps: dict[bytes | int, _Branch] = field(default_factory=dict)

    def here_and_below(self) -> list[int]:
        """The registers of all paths that lead here or on from here."""
        return ([self.register] if self.register >= 0 else []) + self.below()

    def below(self) -> list[int]:
        """The registers of all paths that lead on from here."""
        return [register for branch in self.steps.values() for register in branch.here_and_below()]


def body_table(
    wanted: Mapping[tuple[bytes | int, ...], int],
    scratch: int,
    place: Callable[[Sequence[int]], int],
    key_table: Callable[[Sequence[tuple[bytes, int]]], Sequence[int]],
) -> list[int]:
    """The `BodyBlock` for paths and their registers.

    `place` puts rows among the tables of the program and gives their position; `key_table` makes rows of keys and the
    numbers that they lead to.
    """
    root = _Branch()
    for path, register in wanted.items():
        branch = root
        for step in path:
            branch = branch.steps.setdefault(step, _Branch())
        branch.register = register

    def placed(branch: _Branch) -> int:
        keys: list[tuple[bytes, int]] = []
        elements: list[tuple[int, int]] = []
        for step, following in branch.steps.items():
            if isinstance(step, bytes):
                keys.append((step, placed(following)))
            else:
                elements.append((step, placed(following)))
        rows = [word for pair in sorted(elements) for word in pair]
        return place(
            layout.BranchBlock(
                branch.register, place([*branch.below(), -1]), place(key_table(keys)), place([*rows, -1])
            )
        )

    return [*layout.BodyBlock(placed(root), place([*root.here_and_below(), -1]), scratch)]
