"""A Headgate server's lists of its streams, topics, … and its users, over HTTP.

A server is given as everywhere; its own properties contain the port of its HTTP listener. `http://` and `https://`
addresses are used as they are.
"""

from __future__ import annotations

import base64
import functools
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from headgate.client.address import DEFAULT_USER, ServerAddress
from headgate.client.client import Client
from headgate.client.pipelines import PipelineReport
from headgate.client.rocketmq import RocketTopics
from headgate.client.topics import Topics
from headgate.errors import (
    AccessRefusedError,
    AuthenticationError,
    BrokerError,
    ConfigError,
    ConnectionLostError,
    EncryptionError,
    HeadgateError,
    PreconditionFailedError,
    ResourceNotFoundError,
    RuleError,
    RuleExistsError,
    RuleNotFoundError,
    UnsupportedError,
)
from headgate.message.body_schema import BodySchema

HTTP_PROPERTY = "headgate-http"
"""The property by which a server says where its HTTP listener is: `http:15672`."""

_TIMEOUT_S = 30.0
_ERRORS: Mapping[int, type[BrokerError]] = {
    400: PreconditionFailedError,
    401: AuthenticationError,
    403: AccessRefusedError,
    404: ResourceNotFoundError,
    409: PreconditionFailedError,
}

_RULE_ERRORS: Mapping[int, type[RuleError]] = {400: RuleError, 404: RuleNotFoundError, 409: RuleExistsError}
"""The errors of requests about topics; the server's text names the object."""

Row = dict[str, Any]

_Refusal = Callable[[int, bytes, str], HeadgateError]
"""The error for a status, a body and a path."""


class Management:
    """Requests to one server, as one user; each on a connection of its own."""

    def __init__(self, url: str, user: str, password: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._url = url
        self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        self._opener = urllib.request.build_opener(*handlers)

    @staticmethod
    def of(server: str, *, user: str | None = None, password: str | None = None) -> Management:
        """The management of a server. Raises ConfigError for the address, UnsupportedError for a server without one.

        `server` is what `ServerAddress.parse` takes, or a URL of its HTTP listener. ConnectionLostError if no server
        answers, AuthenticationError if the user is refused.
        """
        if server.startswith(("http://", "https://")):
            return _of_url(server, user, password)
        address = ServerAddress.parse(server, user=user, password=password)
        with Client.connect(server, user=user, password=password) as client:
            told = client.server_properties.get(HTTP_PROPERTY)
        if told is None:
            raise UnsupportedError("the server has no lists: it is no Headgate, or its HTTP is off", subject=server)
        scheme, _, port = told.partition(":")
        host = f"[{address.host}]" if ":" in address.host else address.host
        tls = None if address.tls is None else address.tls.context()
        return Management(f"{scheme}://{host}:{port}", address.user, address.password, tls=tls)

    def session(self) -> Row:
        """Who asks: the `user` and its `tags`. Raises AuthenticationError."""
        return msgspec.json.decode(self._request("GET", "session"), type=Row)

    def streams(self) -> list[Row]:
        """The streams that the user may read."""
        return self._list("streams")

    def stream(self, name: str) -> Row:
        """One stream with all that its files say: sizes, times, stored offsets, publishers."""
        return msgspec.json.decode(self._request("GET", f"streams/{_part(name)}"), type=Row)

    def create_stream(self, name: str, arguments: Mapping[str, object], body_schema: BodySchema) -> None:
        """Make a stream whose bodies have a schema; arguments as `Client.create_stream` takes them.

        PreconditionFailedError for a stream that is there, and for a schema or an argument that the server refuses.
        """
        files = {"" if number is None else str(number): content for number, content in body_schema.files}
        schema = {"format": body_schema.format.value, "files": files, "type": body_schema.message_type}
        body = msgspec.json.encode({"arguments": arguments, "body_schema": schema})
        self._request("PUT", f"streams/{_part(name)}?only=new", body)

    def change_stream(self, name: str, arguments: Mapping[str, object]) -> Row:
        """Give a stream other limits, by the names of arguments without `x-`, None: no limit; gives all arguments."""
        body = msgspec.json.encode({"arguments": arguments})
        told: Row = msgspec.json.decode(self._request("PUT", f"streams/{_part(name)}", body))["arguments"]
        return told

    def delete_stream(self, name: str, *, force: bool) -> None:
        """Delete a stream; PreconditionFailedError that names its consumers if it has any, unless `force`."""
        self._request("DELETE", f"streams/{_part(name)}" + ("?force=true" if force else ""))

    def consumers(self) -> list[Row]:
        """The consumers of these streams, with the filter in force of each."""
        return self._list("consumers")

    def offsets(self) -> list[Row]:
        """The offsets that consumers of these streams stored."""
        return self._list("offsets")

    def why(self, question: Mapping[str, object]) -> Row:
        """Why a consumer got a message, or did not; `docs/reference/http.md` has the keys of question and answer."""
        return msgspec.json.decode(self._request("POST", "why", msgspec.json.encode(question)), type=Row)

    def connections(self) -> list[Row]:
        """The open connections; of users that may not see all, their own."""
        return self._list("connections")

    def users(self) -> list[Row]:
        """The users; for administrators."""
        return self._list("users")

    def put_user(self, name: str, change: Mapping[str, object]) -> None:
        """Make a user, or change one: `password`, `tags`, `permissions`; omitted keys stay. For administrators."""
        self._request("PUT", f"users/{_part(name)}", msgspec.json.encode(change))

    def delete_user(self, name: str) -> None:
        """Delete a user; for administrators."""
        self._request("DELETE", f"users/{_part(name)}")

    def messages(self, name: str, query: Mapping[str, object]) -> Row:
        """Messages of a stream, looked at: `query` as the API has it (`from`, `filter`, `language`, `limit`, …)."""
        path = f"streams/{_part(name)}/messages?{urlencode(query, doseq=True)}"
        return msgspec.json.decode(self._request("GET", path), type=Row)

    def check_filter(self, text: str, language: str) -> Row:
        """Whether a text is a filter in a language; if not, where and why."""
        body = msgspec.json.encode({"text": text, "language": language})
        return msgspec.json.decode(self._request("POST", "filters/check", body), type=Row)

    def segments(self, name: str) -> Row:
        """The segments of a stream with times and sizes, its limits, and what keeps messages in spite of them."""
        return msgspec.json.decode(self._request("GET", f"streams/{_part(name)}/segments"), type=Row)

    def bloom(self, name: str) -> Row:
        """What the Bloom filters of a stream achieve, with advice."""
        return msgspec.json.decode(self._request("GET", f"streams/{_part(name)}/bloom"), type=Row)

    def history(self, stream: str | None = None) -> Row:
        """Samples of the server's last quarter of an hour, or of one stream's: `times_ms`, and `series` by name."""
        query = "" if stream is None else f"?{urlencode({'stream': stream})}"
        return msgspec.json.decode(self._request("GET", f"history{query}"), type=Row)

    def start_spark_job(self, body: Mapping[str, object]) -> str:
        """Start a back-test or a build on the Spark of the server; gives its id for `topics.job`.

        `body` is as the API has it: `{"kind": "back-test", "stream": "orders", "rules": […]}`.
        """
        return str(msgspec.json.decode(self._request("POST", "spark-jobs", msgspec.json.encode(body)))["job"])

    def spark_report(self, job: str) -> list[Row]:
        """What an ended job of Spark wrote."""
        return self._list(f"spark-jobs/{_part(job)}/report")

    def pipelines(self) -> list[Row]:
        """The jobs of Spark that reported to the server: the user's own; all for administrators and monitors."""
        return self._list("pipelines")

    def report_pipeline(self, name: str, report: PipelineReport) -> None:
        """Tell the server how a job of Spark goes. AccessRefusedError where another user's job has this name."""
        self._request("PUT", f"pipelines/{_part(name)}", msgspec.json.encode(report))

    def tokens(self) -> list[Row]:
        """The user's tokens, or as an administrator all."""
        return self._list("tokens")

    def create_token(self, description: str, *, expires_in_s: int | None = None, read_only: bool = False) -> Row:
        """Make a token of the user: its `id`, and its text as `token`, which is told this once."""
        body = {"description": description, "expires_in_s": expires_in_s, "read_only": read_only}
        return msgspec.json.decode(self._request("POST", "tokens", msgspec.json.encode(body)), type=Row)

    def delete_token(self, identifier: str) -> None:
        """Revoke a token, by its id."""
        self._request("DELETE", f"tokens/{_part(identifier)}")

    def audit(self, **query: object) -> list[Row]:
        """Entries of the audit stream, in order, by the parameters `from`, `since_ms`, `user`, `action`, `limit`.

        For administrators.
        """
        given = {name: value for name, value in query.items() if value is not None}
        return self._list("audit" + (f"?{urlencode(given)}" if given else ""))

    @property
    def topics(self) -> Topics:
        """The topics of the server. Their calls raise the server's refusals as RuleError and its kinds."""
        return Topics(functools.partial(self._ask, _rule_refusal))

    @property
    def rocketmq(self) -> RocketTopics:
        """Topics and consumer groups as clients of RocketMQ have them."""
        return RocketTopics(functools.partial(self._ask, _refusal))

    def _ask(
        self, refusal: _Refusal, method: str, path: Sequence[str], query: Mapping[str, object], body: object
    ) -> Any:
        encoded = "/".join(map(_part, path)) + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(self._request(method, encoded, data, refusal=refusal))

    def _list(self, what: str) -> list[Row]:
        return msgspec.json.decode(self._request("GET", what), type=list[Row])

    def _request(self, method: str, path: str, body: bytes | None = None, *, refusal: _Refusal | None = None) -> bytes:
        request = urllib.request.Request(f"{self._url}/api/{path}", data=body, method=method)
        request.add_header("Authorization", self._authorization)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                answered = error.read()
            # Without the query: the reason names what is wrong in it, and it may be long.
            asked = path.partition("?")[0]
            raise self._other_encryption(error) or (refusal or _refusal)(error.code, answered, asked) from error
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", None) or error)
            raise self._other_encryption(error) or ConnectionLostError(reason, server=self._url) from error

    def _other_encryption(self, error: Exception) -> EncryptionError | None:
        """That TLS is spoken on one side only, or the certificate is not trusted; None if it is neither."""
        from headgate.client.encryption import plain_refusal, tls_refusal

        parts = urlsplit(self._url)
        if parts.scheme == "https":
            reason = getattr(error, "reason", None)
            return tls_refusal(
                reason if isinstance(reason, OSError) else error, self._url, plain=f"http://{parts.netloc}"
            )
        is_misdirected = isinstance(error, urllib.error.HTTPError) and error.headers.get_content_type() == "text/plain"
        if is_misdirected or isinstance(error, http.client.HTTPException | ConnectionResetError):
            # A server that speaks TLS ends the connection, or answers with bytes that are no HTTP, or in plain text.
            return plain_refusal(parts.hostname or "", parts.port or 80, self._url, encrypted=f"https://{parts.netloc}")
        return None


def _of_url(server: str, user: str | None, password: str | None) -> Management:
    parts = urlsplit(server)
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"server: found {server!r}, expected http://USER:PASSWORD@HOST:PORT")
    own_user = None if parts.username is None else unquote(parts.username)
    own_password = None if parts.password is None else unquote(parts.password)
    place = parts.netloc.rpartition("@")[2]
    return Management(
        f"{parts.scheme}://{place}",
        user or own_user or DEFAULT_USER,
        password or own_password or DEFAULT_USER,
        tls=ssl.create_default_context() if parts.scheme == "https" else None,
    )


def _part(name: str) -> str:
    """A name as one part of a path. An empty one would ask for the list: raises PreconditionFailedError."""
    if not name:
        raise PreconditionFailedError("found an empty name")
    return quote(name, safe="")


def _refusal(status: int, body: bytes, path: str) -> HeadgateError:
    return _ERRORS.get(status, BrokerError)(_reason(status, body), subject=path)


def _rule_refusal(status: int, body: bytes, path: str) -> HeadgateError:
    kind = _RULE_ERRORS.get(status)
    return _refusal(status, body, path) if kind is None else kind(_reason(status, body))


def _reason(status: int, body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["error"])
    except (msgspec.DecodeError, TypeError, KeyError):
        return f"the server answered {status}"
