"""The counters of a read."""

from __future__ import annotations

import msgspec


class ScanCounters(msgspec.Struct):
    """Counts of chunks and messages examined, skipped and kept, named as in metrics, command line and progress."""

    chunks_examined: int = 0
    """Chunks with messages that stage 1 looked at (its header, if there was something to test)."""
    chunks_skipped: int = 0
    """Chunks that stage 1 ruled out: their data was not read."""
    chunks_skipped_by_index: int = 0
    """Chunks that the match index ruled out: their data was not read."""
    chunks_skipped_by_columns: int = 0
    """Chunks that column files ruled out: their data was not read."""
    chunks_skipped_by_lookup: int = 0
    """Chunks that lookup files ruled out: their data was not read."""
    chunks_without_match: int = 0
    """Chunks that were read and gave no message: false positives of stage 1 where it tested."""
    chunks_corrupt: int = 0
    """Damaged chunks that were skipped on request; a segment that cannot be opened counts as one."""
    bytes_read: int = 0
    bytes_skipped: int = 0
    """Bytes of the chunks that were skipped, and of the messages that derived files left out of others."""
    column_bytes_read: int = 0
    """Bytes of column files that were read to decide messages."""
    messages_evaluated: int = 0
    """Messages of the chunks read, in the requested range, except messages decided by derived files."""
    messages_decided_by_index: int = 0
    """Messages in the range asked for that the match index decided: not evaluated, and not read unless they match."""
    messages_decided_by_columns: int = 0
    """As before, decided by column files."""
    messages_decided_by_lookup: int = 0
    """As before, decided by lookup files."""
    messages_matched: int = 0
    messages_unknown: int = 0
    """Verdict unknown; counted with `exact` only."""
    messages_error: int = 0
    """Verdict error, malformed messages included; counted with `exact` only."""
    messages_malformed: int = 0
    """Entries that are no AMQP message: with `exact` all of them, else the ones that evaluation met."""
    bodies_sampled: int = 0
    """Bodies that were looked at for a filter with paths into bodies: at most one of each read."""
    bodies_unreadable: int = 0
    """Those of them that are no JSON, or not of the stream's schema: every path is unknown there."""
    cpu_ns: int = 0
    """Nanoseconds of processor time for reading and deciding, in servers; 0 without a clock. Work done once for several
    readers is divided among them in equal shares."""

    @property
    def messages_decided(self) -> int:
        """Messages in the range asked for that stage 1 left, evaluated or decided by derived files."""
        by_files = self.messages_decided_by_index + self.messages_decided_by_columns + self.messages_decided_by_lookup
        return self.messages_evaluated + by_files

    @property
    def chunks_left_out(self) -> int:
        """Chunks whose data was not read: ruled out by stage 1 or by derived files."""
        by_files = self.chunks_skipped_by_index + self.chunks_skipped_by_columns + self.chunks_skipped_by_lookup
        return self.chunks_skipped + by_files

    def add(self, other: ScanCounters) -> None:
        """Add the counts of another reader."""
        self.chunks_examined += other.chunks_examined
        self.chunks_skipped += other.chunks_skipped
        self.chunks_skipped_by_index += other.chunks_skipped_by_index
        self.chunks_skipped_by_columns += other.chunks_skipped_by_columns
        self.chunks_skipped_by_lookup += other.chunks_skipped_by_lookup
        self.chunks_without_match += other.chunks_without_match
        self.chunks_corrupt += other.chunks_corrupt
        self.bytes_read += other.bytes_read
        self.bytes_skipped += other.bytes_skipped
        self.column_bytes_read += other.column_bytes_read
        self.messages_evaluated += other.messages_evaluated
        self.messages_decided_by_index += other.messages_decided_by_index
        self.messages_decided_by_columns += other.messages_decided_by_columns
        self.messages_decided_by_lookup += other.messages_decided_by_lookup
        self.messages_matched += other.messages_matched
        self.messages_unknown += other.messages_unknown
        self.messages_error += other.messages_error
        self.messages_malformed += other.messages_malformed
        self.bodies_sampled += other.bodies_sampled
        self.bodies_unreadable += other.bodies_unreadable
        self.cpu_ns += other.cpu_ns

    def copy(self) -> ScanCounters:
        """A copy of the counters, to add to."""
        return msgspec.structs.replace(self)

    def as_dict(self) -> dict[str, int]:
        """Counters by name."""
        return msgspec.structs.asdict(self)
