"""The endpoints of `/api`, a module for each group of them.

    api_groups       all groups, in the order of the reference
    broker_groups    those that need no server: commands on the files of a root ask them

    streams       streams: lists, one with all that its files say, changed limits, deletion
    messages      the messages of a stream
    languages     filter languages, and the check of a text
    stream_files  segments on a time line, Bloom filters
    lists         consumers, stored offsets, connections
    why           why a consumer got a message, or did not
    history       the last quarter of an hour, for charts
    jobs          long work that users asked for: how far it is, cancelling it
    pipelines     jobs of Spark that report to the server
    spark_jobs    back-tests and builds as jobs of Spark
    users         users
    sessions      logging in and out, for the console
    tokens        tokens, for scripts
    audit         the audit stream

Others are where their answers are made: topics in `headgate.server.topics`, what RabbitMQ's monitors ask for in
`headgate.server.management`. How to add one is in docs/design/server.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.api.groups import api_groups, broker_groups
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
