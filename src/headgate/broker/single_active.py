"""Single active consumer: at most one of the consumers that share a name reads a stream (stream_protocol, section 6).

A pure state machine. A name is shared on one stream. The members alone determine the active one: on a plain stream the
first that registered, on a partition of a super stream the one at partition index modulo number of members. When that
changes, the old one is asked to stop, and only after its answer the new one is asked to begin.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol


class Member(Protocol):
    """A consumer that shares a name."""

    def asked(self, active: bool) -> None:
        """Ask it to become active or inactive; it answers with `SharedName.answered`, at once or later."""


class SharingState(Enum):
    """The state of a shared name."""

    VACANT = "vacant"
    """No member is active or asked."""
    ACTIVATING = "activating"
    """The holder was asked to begin and has not answered."""
    ACTIVE = "active"
    """The holder reads."""
    DEACTIVATING = "deactivating"
    """The holder was asked to stop and has not answered."""


class SharedName:
    """The consumers of one name on one stream; `partition` is the stream's place in its super stream, None for none."""

    __slots__ = ("_members", "holder", "partition", "state")

    def __init__(self, *, partition: int | None) -> None:
        self.partition = partition
        self.state = SharingState.VACANT
        self.holder: Member | None = None
        self._members: list[Member] = []

    @property
    def members(self) -> tuple[Member, ...]:
        """The consumers that share the name, in order of registration."""
        return tuple(self._members)

    def join(self, member: Member) -> None:
        """A consumer registers; questions come with `settle`."""
        self._members.append(member)

    def leave(self, *members: Member) -> None:
        """Consumers end, together; one that left before, or never joined, changes nothing."""
        self._members = [member for member in self._members if member not in members]
        if self.holder is not None and self.holder in members:
            self.holder = None
            self.state = SharingState.VACANT
        self.settle()

    def disband(self) -> None:
        """The stream is deleted: no more questions."""
        self._members.clear()
        self.holder = None
        self.state = SharingState.VACANT

    def answered(self, member: Member) -> None:
        """A member confirmed its change of state; answers of other members change nothing."""
        if member is not self.holder:
            return
        if self.state is SharingState.ACTIVATING:
            self.state = SharingState.ACTIVE
        elif self.state is SharingState.DEACTIVATING:
            self.holder = None
            self.state = SharingState.VACANT
        self.settle()

    def is_active(self, member: Member) -> bool:
        """Whether a member reads now."""
        return member is self.holder and self.state is SharingState.ACTIVE

    def settle(self) -> None:
        """Ask the next member that has to begin or stop, unless an answer is still due.

        The question comes last, as a member may answer inside it.
        """
        wanted = self._wanted()
        if self.state is SharingState.VACANT and wanted is not None:
            self.state, self.holder = SharingState.ACTIVATING, wanted
            wanted.asked(True)
        elif self.state is SharingState.ACTIVE and self.holder is not wanted and self.holder is not None:
            self.state = SharingState.DEACTIVATING
            self.holder.asked(False)

    def _wanted(self) -> Member | None:
        if not self._members:
            return None
        return self._members[0 if self.partition is None else self.partition % len(self._members)]


class SharedNames:
    """The shared names on all streams of a broker; `later` makes a call after the answer of the current command."""

    def __init__(self, later: Callable[[Callable[[], None]], None]) -> None:
        self._later = later
        self._names: dict[tuple[str, str], SharedName] = {}

    def __len__(self) -> int:
        return len(self._names)

    def join(self, stream: str, name: str, member: Member, *, partition: int | None) -> SharedName:
        """Let a consumer share a name on a stream; members are asked to begin and stop later.

        `partition` is as for `SharedName`.
        """
        shared = self._names.setdefault((stream, name), SharedName(partition=partition))
        shared.join(member)
        self._later(shared.settle)
        return shared

    def leave(self, stream: str, name: str, member: Member) -> None:
        """A consumer ends; a name without members is forgotten."""
        shared = self._names.get((stream, name))
        if shared is not None:
            shared.leave(member)
            if not shared.members:
                del self._names[stream, name]

    def forget(self, stream: str) -> None:
        """A stream is deleted: its names are shared no more."""
        for key in [key for key in self._names if key[0] == stream]:
            self._names.pop(key).disband()
