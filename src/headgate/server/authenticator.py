"""Logins: credentials are checked in a separate thread; failures are delayed, counted and logged.

    PLAIN, AMQPLAIN   a user of the users file with its password; the default user, unless it was given a password of
                      its own in the configuration, from this machine only. Or a token as the password: it says which
                      user it is, whatever the name beside it
    EXTERNAL          the user that the client's checked TLS certificate names (common name of its subject)
    ANONYMOUS         the default user, from this machine only
    MSSBCBS           nobody: services that take tokens know what such a client may do

No log line and no error contains a password, or tells whether the name or the password was wrong.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from headgate.broker import Token, Users
from headgate.clock import Clock
from headgate.errors import AuthenticationError, HeadgateError, LoopbackOnlyError
from headgate.protocols.sasl import Anonymous, ByToken, Credentials, External, Mechanism, Plain
from headgate.server.connections import Connections
from headgate.server.settings import ServerSettings
from headgate.server.transport import Caller, Peer

MONITORING = "monitoring"
"""Tag: the user may see all streams, consumers and connections."""

_WINDOW_S = 60.0
_REMEMBERED_ADDRESSES = 10_000
_REFUSED = "Login was refused"
"""The answer to wrong credentials; it is the same for every cause."""
_ELSEWHERE = "the default user may come from this machine only"

logger = logging.getLogger("headgate.server.login")

Answer = Callable[[str | AuthenticationError], None]
RunInThread = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]


class Authenticator:
    """Checks credentials against users; see the head of this module."""

    def __init__(
        self,
        users: Users,
        settings: ServerSettings,
        clock: Clock,
        *,
        connections: Connections,
        run_in_thread: RunInThread,
    ) -> None:
        self._users = users
        self._settings = settings
        self._clock = clock
        self._connections = connections
        self._run_in_thread = run_in_thread
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def mechanisms(self, caller: Caller) -> tuple[str, ...]:
        """The SASL mechanisms for this caller, the preferred one first."""
        offered: list[str] = [Mechanism.PLAIN, Mechanism.AMQPLAIN]
        if caller.peer.certificate_name is not None:
            offered.insert(0, Mechanism.EXTERNAL)
        if self.takes_anonymous(caller):
            offered.append(Mechanism.ANONYMOUS)
        return tuple(map(str, offered))

    def authenticate(
        self, caller: Caller, credentials: Credentials, then: Answer, *, takes_read_only: bool = False
    ) -> None:
        """Check credentials; `then` gets the user's name or an error without secrets, later, in the loop's thread.

        A read-only token is refused unless the caller `takes_read_only`, and sees to it that nothing is changed.

        The answer to wrong credentials is delayed by `timeouts.login_failure_s`. Credentials from an address with too
        many failures in a minute are refused without a check.
        """
        if self._is_blocked(caller.peer.host):
            self._refuse(caller, "", "too many failures from this address in a minute", then)
            return
        match credentials:
            case Plain(user, password):
                token = self._users.tokens.find(password, now_ms=self._clock.now_ms())
                if token is not None:
                    self._check_token(caller, token, then, takes_read_only=takes_read_only)
                elif self.is_from_elsewhere(caller.peer, user):
                    self._refuse(caller, user, _ELSEWHERE, then, LoopbackOnlyError(_REFUSED))
                else:
                    self._run_in_thread(
                        lambda: self._users.authenticate(user, password),
                        lambda error: self._checked(caller, user, error, then),
                    )
            case External(wanted):
                name = caller.peer.certificate_name
                if name is None or wanted not in ("", name) or name not in self._users:
                    self._refuse(caller, name or wanted, "no certificate of a user of that name", then)
                elif self.is_from_elsewhere(caller.peer, name):
                    self._refuse(caller, name, _ELSEWHERE, then, LoopbackOnlyError(_REFUSED))
                else:
                    self._accept(caller, name, then)
            case Anonymous():
                if self.takes_anonymous(caller):
                    self._accept(caller, self._settings.authentication.default_user, then)
                else:
                    self._refuse(caller, "", "anonymous clients are taken from this machine only, if at all", then)
            case ByToken():
                self._refuse(caller, "", "there is no service that takes tokens", then)

    def _check_token(self, caller: Caller, token: Token, then: Answer, *, takes_read_only: bool) -> None:
        if token.user not in self._users:
            self._refuse(caller, token.user, "a token of a user that is not there", then)
        elif self.is_from_elsewhere(caller.peer, token.user):
            self._refuse(caller, token.user, _ELSEWHERE, then, LoopbackOnlyError(_REFUSED))
        elif token.read_only and not takes_read_only:
            self._refuse(caller, token.user, "a read-only token is taken over HTTP only", then)
        else:
            self._accept(caller, token.user, then)

    def is_from_elsewhere(self, peer: Peer, user: str) -> bool:
        """Whether a user that may log in from this machine only comes from another machine."""
        settings = self._settings.authentication
        is_for_this_machine = user == settings.default_user and settings.default_password is None
        return is_for_this_machine and not peer.is_loopback

    def takes_anonymous(self, caller: Caller) -> bool:
        """Whether an anonymous client is accepted from there, as the default user."""
        settings = self._settings.authentication
        return settings.anonymous and caller.peer.is_loopback and settings.default_user in self._users

    def _checked(self, caller: Caller, user: str, error: BaseException | None, then: Answer) -> None:
        if error is None:
            self._accept(caller, user, then)
        elif isinstance(error, HeadgateError):
            self._refuse(caller, user, "no such user, or a wrong password", then)
        else:
            logger.error("the password of user %r could not be checked", user, exc_info=error)
            self._refuse(caller, user, "it could not be checked", then)

    def _accept(self, caller: Caller, user: str, then: Answer) -> None:
        self._connections.totals.logins += 1
        record = self._connections.of(caller)
        record.user = user
        if record.number:
            # Each task of a Spark query logs in: at a higher level these lines would outnumber all others.
            logger.debug("%s: user %r logged in", record.name, user)
        caller.call_soon(lambda: then(user))

    def _refuse(
        self, caller: Caller, user: str, reason: str, then: Answer, error: AuthenticationError | None = None
    ) -> None:
        host = caller.peer.host
        logger.warning("login refused: user %r from %s: %s", user, host, reason)
        self._connections.totals.logins_failed += 1
        self._note_failure(host)
        answer = error or AuthenticationError(_REFUSED)
        caller.call_later(self._settings.timeouts.login_failure_s, lambda: then(answer))

    def note_refusal(self, caller: Caller, user: str, reason: str) -> None:
        """Count a request with wrong credentials, in a protocol without logins, as a failed login.

        From an address with too many failures nothing is logged until the minute is over.
        """
        host = caller.peer.host
        if not self._is_blocked(host):
            logger.warning("request refused: key %r from %s: %s", user, host, reason)
        self._connections.totals.logins_failed += 1
        self._note_failure(host)

    def _is_blocked(self, host: str) -> bool:
        times = self._failures.get(host)
        if times is None:
            return False
        oldest = self._clock.monotonic_s() - _WINDOW_S
        while times and times[0] <= oldest:
            times.popleft()
        return len(times) >= self._settings.limits.login_failures_a_minute

    def _note_failure(self, host: str) -> None:
        limit = self._settings.limits.login_failures_a_minute
        times = self._failures.setdefault(host, deque(maxlen=max(1, limit)))
        times.append(self._clock.monotonic_s())
        self._failures.move_to_end(host)
        if len(self._failures) > _REMEMBERED_ADDRESSES:
            self._failures.popitem(last=False)
