"""What may be answered of a damaged root: the truth, an error that names the file, or what the format cannot tell.

`CANNOT_SHOW` and `looks_like_a_crash` are the damage that nobody can see; the table of it is in
docs/design/streams.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .judging import is_oldest_gone, reaches_beyond_end, whole_chunks
from .mutations import Mutation
from .roots import Answer, Refused, Root, ask_of


@dataclass(frozen=True)
class Gone:
    """A file whose removal cannot be seen: why, and the questions that are answered as if it had never been there."""

    file: str
    reason: str
    questions: tuple[str, ...]

    @property
    def text(self) -> str:
        """The damage and the reason, as in the table of the design page."""
        return f"`{self.file}` is removed: {self.reason}"


CANNOT_SHOW = (
    Gone("users.json", "a new root has none: the default user is made", ("users",)),
    Gone("keys.json", "without a key there is none", ("keys",)),
    Gone(
        "exchanges.json", "without exchanges there is none", ("exchanges", "route", "places", "list of message topics")
    ),
    Gone("queue-numbers.json", "without a number there is none; ids of messages name other queues", ("queue numbers",)),
    Gone("message-topics.json", "a topic that takes every kind has no entry", ("list of message topics",)),
    Gone("consumer-groups.json", "without a declared group there is none; places stay", ("groups", "places")),
    Gone("completed.json", "a query without a finished batch has none", ("commits",)),
    Gone("stream.json", "the folder is a foreign one", ("list of streams", "queue numbers", "declared of plain")),
    Gone(
        "topic.journal",
        "a plain stream has none, and what a topic has beside it may be left by its removal",
        ("open", "peek", "dead letters", "rules", "list of", "deferred", "receive", "then"),
    ),
    Gone("match-filters.json", "a stream without a match index has none; it is made anew", ("declared of plain",)),
    Gone("columns.json", "a stream without declared columns has none", ("declared of plain",)),
    Gone("lookup.json", "a stream without lookup fields has none", ("declared of plain",)),
)


OF_MESSAGES = ("messages of", "red ones of", "list of streams", "list of message topics")
"""Questions that are answered as after retention where the oldest pair of a stream is gone."""


@dataclass(frozen=True)
class Wrong:
    """An answer that is neither the truth nor an error that names the file."""

    mutation: Mutation
    number: int
    question: str
    what: str
    detail: str

    @property
    def group(self) -> tuple[str, str, str, str]:
        return self.mutation.kind, f"{self.mutation.original.name}: {self.mutation.file_kind}", self.question, self.what


@dataclass
class Result:
    wrong: list[Wrong] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)


def refusals(answer: Answer) -> list[str]:
    """The errors in an answer."""
    if isinstance(answer, Refused):
        return [answer.error]
    if isinstance(answer, list | tuple):
        return [error for part in answer for error in refusals(part)]
    return []


def is_true(found: Answer, wanted: Answer) -> bool:
    """Whether an answer is the truth, where it is no error; rows with an error stand for others."""
    if isinstance(found, Refused) or found == wanted:
        return True
    if isinstance(found, list) and isinstance(wanted, list):
        rows = [row for row in found if not isinstance(row, Refused)]
        return len(rows) < len(found) and all(row in wanted for row in rows)
    if isinstance(found, tuple) and isinstance(wanted, tuple) and len(found) == len(wanted):
        return all(map(is_true, found, wanted))
    return False


def names_file(root: Path, mutation: Mutation, error: str) -> bool:
    """Whether an error names a damaged file by its path in the root; of one that is gone, its folder.

    Also where the end is gone: of a message that is not there any more nobody can say more than the stream.
    """
    folder = root / mutation.original.name
    said = [Path(path) for path in re.findall(re.escape(str(root)) + r"[^\s:,;'\"]*", error)]
    for name in mutation.names:
        stem = name[:20] if name[:20].isdecimal() else name
        if any(path.parent == folder and path.name.startswith(stem) for path in said):
            return True
        if name not in mutation.files and any(folder in (path, path.parent) for path in said):
            return True
    return looks_like_a_crash(mutation) and folder in said


def looks_like_a_crash(mutation: Mutation) -> bool:
    """Whether only the end of the last pair is damaged, so that a recovery may cut it."""
    log_files = all(name.endswith((".index", ".segment")) for name in mutation.names)
    is_end = mutation.is_cut_tail or mutation.changes_last_chunk or mutation.is_in_last_chunk
    return bool(mutation.original.chunks) and log_files and mutation.is_of_last_pair and is_end


def wrong_answers(
    original: Root, mutation: Mutation, number: int, answers: dict[str, Answer], wanted: dict[str, Answer]
) -> Iterator[Wrong]:
    """The answers that are neither what is wanted nor an error that names the file."""
    for question, answer in answers.items():
        unnamed = [error for error in refusals(answer) if not names_file(original.path, mutation, error)]
        if unnamed and answer != wanted.get(question):
            yield Wrong(mutation, number, question, "names another file", unnamed[0][:600])
        elif question != "start" and not is_true(answer, wanted[question]):
            yield Wrong(mutation, number, question, "wrong and silent", difference(answer, wanted[question]))


def examine(original: Root, mutation: Mutation, number: int, result: Result) -> None:
    """Ask everything of a damaged root."""
    try:
        answers, logged = ask_of(original.path, original.with_files(mutation.original, mutation.files))
    except Exception as error:
        result.wrong.append(Wrong(mutation, number, "all", f"ended with {type(error).__name__}", str(error)))
        result.verdicts["wrong"] += 1
        return
    found = list(wrong_answers(original, mutation, number, answers, original.answers))
    said = any(refusals(answer) for answer in answers.values())
    verdict = "error" if said else "truth"
    gone = [each for each in CANNOT_SHOW for name in mutation.names if name == each.file and name not in mutation.files]
    if found and gone and all(each.question.startswith(gone[0].questions) for each in found):
        found, verdict = [], "could not show"
    if found and is_oldest_gone(mutation) and all(each.question.startswith(OF_MESSAGES) for each in found):
        found, verdict = [], "could not show"
    if found and looks_like_a_crash(mutation):
        is_named = (
            mutation.is_cut_tail
            or reaches_beyond_end(mutation)
            or any(names_file(original.path, mutation, text) for text in logged)
        )
        chunks = len(mutation.original.chunks)
        for count in range(min(whole_chunks(mutation), chunks - 1), chunks if is_named else 0):
            earlier = original.earlier(mutation.original, count)
            if not any(wrong_answers(original, mutation, number, answers, earlier)):
                found, verdict = [], "could not show"
                break
    result.wrong += found
    result.verdicts["wrong" if found else verdict] += 1


def difference(found: Answer, wanted: Answer) -> str:
    """Where two answers first differ."""
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        missing = [each for each in wanted if each not in found]
        more = [each for each in found if each not in wanted]
        if missing and more and isinstance(missing[0], dict) and isinstance(more[0], dict):
            return f"{ {k: (v, missing[0].get(k)) for k, v in more[0].items() if v != missing[0].get(k)} }"
        return f"{len(found)} of {len(wanted)}, missing {str(missing)[:150]}, too many {str(more)[:150]}"
    return f"{str(found)[:200]} instead of {str(wanted)[:200]}"
