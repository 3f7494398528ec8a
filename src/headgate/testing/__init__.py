"""Servers for tests of applications: a whole one per test, in a thread of the test's process, and nothing left behind.

    running_server      a server for the length of a `with`: for any framework of tests
    HeadgateServer      where it listens, as clients want to be told: connection strings, URIs
    served              the same for a configuration of one's own, in a thread

`plugin` is the fixture `headgate_server` for pytest, which finds it by itself. Only that module imports pytest.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.testing.server import HeadgateServer, running_server
    from headgate.testing.server_thread import ServerInThread, served
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
