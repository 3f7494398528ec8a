"""All groups of endpoints, in the order of the reference."""

from __future__ import annotations

from headgate.broker import Broker
from headgate.server.api.audit import audit_group
from headgate.server.api.history import history_group
from headgate.server.api.jobs import job_group
from headgate.server.api.languages import language_group
from headgate.server.api.lists import list_group
from headgate.server.api.messages import message_group
from headgate.server.api.pipelines import pipeline_group
from headgate.server.api.sessions import session_group
from headgate.server.api.spark_jobs import spark_job_group
from headgate.server.api.stream_files import stream_files_group
from headgate.server.api.streams import stream_group
from headgate.server.api.tokens import token_group
from headgate.server.api.users import user_group
from headgate.server.api.why import why_group
from headgate.server.context import ServerContext
from headgate.server.http import Access, Group
from headgate.server.management import management_group
from headgate.server.topics import topic_groups


def api_groups(context: ServerContext, access: Access) -> tuple[Group, ...]:
    """The groups of one server."""
    return (
        stream_group(context),
        message_group(context, access),
        language_group(context),
        stream_files_group(context),
        list_group(context),
        history_group(context),
        why_group(context),
        *broker_groups(context.broker),
        pipeline_group(context),
        spark_job_group(context),
        user_group(context),
        session_group(context, access),
        token_group(context),
        audit_group(context),
        management_group(context),
    )


def broker_groups(broker: Broker) -> tuple[Group, ...]:
    """The groups that a broker without a server answers, too, for commands on the files of a root: topics and jobs.

    They are answered in its loop, in which `Broker.wake` schedules the broker's next turn.
    """
    return (*topic_groups(broker), job_group(broker))
