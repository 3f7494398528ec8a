"""Why not? One message of a stream, and what became of it for each consumer: found in files, without a server.

    why                      the question, in Python; `ask` takes it with what only a server knows
    Question, Selector       what is asked: which message, for whom; `ReaderFilter`: by which filter
    Facts, ConnectedConsumer what a server knows beside the files: who is connected, with which filter, how far
    Answer                   the answer: `as_dict()` for programs, `str` for people (`answer`)
    streams_of               the streams that a name means: a stream, the queues of a topic of RocketMQ's clients

The order of the questions, each in a module:

    which message?           search        by offset, by id, by a filter: lookup files, column files, else a scan
    stored? confirmed?       storage       segment, chunk, publisher; or passed over by retention
    for whom?                question      which kind of consumer a name means
    selected, and then?      readers       filter, stage, and how far a reader of the stream is
                             subscriptions the rules in force (`selection`), and the ledger of each copy (`copy_fates`)
                             groups        consumer groups of RocketMQ's clients

It reads only: no lock is taken, nothing is written. What it says of a stream that is in use is true of one moment.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.trace.answer import Answer
    from headgate.trace.facts import ConnectedConsumer, Facts
    from headgate.trace.parts import (
        AnsweredClause,
        AnsweredCopy,
        ConsumerAnswer,
        ConsumerKind,
        Decision,
        Fate,
        Search,
        Stage,
        State,
        Step,
        StoredMessage,
    )
    from headgate.trace.question import Question, ask, why
    from headgate.trace.readers import ReaderFilter
    from headgate.trace.search import Selector
    from headgate.trace.sources import streams_of
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
