"""Filters of receives: each text is compiled once and kept, as every receive repeats it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from headgate.errors import FilterError, FilterLimitError, RemoteProtocolError
from headgate.evaluate import Filter
from headgate.language.rocketmq import TAGS
from headgate.protocols.rocketmq import Status, refused
from headgate.protocols.rocketmq.grpc import messages as pb
from headgate.server.settings import ServerSettings

DIALECT = "rocketmq"
_TAG_KINDS = (pb.FilterType.TAG, pb.FilterType.FILTER_TYPE_UNSPECIFIED)
_KEPT = 1_024
_PARSE_FAILED = "parse the consumer's subscription failed"
_WRONG_TAGS = "expression format is not correct"


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filters of one receive: `fresh` for new messages of the group, `again` for redelivered ones; None: all."""

    fresh: Filter | None
    again: Filter | None


class GroupFilters:
    """The filters that clients used last."""

    def __init__(self, settings: ServerSettings) -> None:
        self._is_late = settings.rocketmq.check_filters == "late"
        self._most_bytes = settings.limits.filter_bytes
        self._kept: OrderedDict[tuple[int, str], GroupFilter | RemoteProtocolError] = OrderedDict()

    def check_settings(self, kind: int, text: str) -> None:
        """Check a filter in a client's settings. Raises RemoteProtocolError for a wrong one."""
        if kind == pb.FilterType.SQL and self._is_late:
            return
        try:
            self.get(kind, text)
        except RemoteProtocolError as error:
            if kind not in _TAG_KINDS:
                raise
            raise refused(Status.ILLEGAL_FILTER_EXPRESSION, _WRONG_TAGS) from error

    def get(self, kind: int, text: str) -> GroupFilter:
        """The filter of a receive. Raises RemoteProtocolError with a status for a wrong filter."""
        kept = self._kept.pop((kind, text), None)
        if kept is None:
            kept = self._made(kind, text)
            if len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
        self._kept[kind, text] = kept
        if isinstance(kept, RemoteProtocolError):
            raise kept
        return kept

    def _made(self, kind: int, text: str) -> GroupFilter | RemoteProtocolError:
        try:
            return self._filter(kind, text)
        except RemoteProtocolError as error:
            return error
        except FilterError as error:
            if kind == pb.FilterType.SQL and self._is_late:
                return refused(Status.INTERNAL_SERVER_ERROR, _PARSE_FAILED)
            reason = str(error) if kind == pb.FilterType.SQL else error.reason
            return refused(Status.ILLEGAL_FILTER_EXPRESSION, reason)

    def _filter(self, kind: int, text: str) -> GroupFilter:
        is_sql = kind == pb.FilterType.SQL
        if not is_sql and kind not in _TAG_KINDS:
            raise refused(Status.ILLEGAL_FILTER_EXPRESSION, f"filters of type {kind} are not known")
        size_bytes = len(text.encode("utf-8", "surrogatepass"))
        if size_bytes > self._most_bytes:
            raise FilterLimitError(
                f"the filter has {size_bytes} bytes, at most {self._most_bytes} (limits.filter_bytes)",
                dialect=DIALECT if is_sql else TAGS,
                text=text[:80],
            )
        if is_sql:
            return GroupFilter(Filter.parse(text, DIALECT), None)
        found = Filter.subscribed(text, TAGS)
        return GroupFilter(found, found)
