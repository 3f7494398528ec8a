"""The broker on the network: listeners and one event loop for all protocols, configuration, metrics, health.

    serve, load_settings, Authentication     run a server as this process; its settings from a file
    Server, settings_of, new_loop            run one in a loop of one's own; its settings from tables
    stored_rows, user_rows, change_user      lists and changes that the command line shares with `/api`
    broker_groups, Router                    the endpoints that commands on files ask, too: topics and jobs

Hidden: the course of a connection. Each protocol has a handler that turns the events of its core (`protocols`) into
commands of the broker (`broker`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.api import broker_groups
    from headgate.server.configuration import load_settings, settings_of
    from headgate.server.context import HandlerFactory
    from headgate.server.http import Router
    from headgate.server.listings import UserChange, change_user, stored_rows, user_rows
    from headgate.server.process import KERNELS_WITHIN_S, new_loop, serve
    from headgate.server.server import Server
    from headgate.server.settings import Authentication, ServerSettings
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
