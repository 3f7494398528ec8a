"""Administration over HTTP: who may ask, what is told, and what comes of requests that are wrong or made to harm."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import random
import socket
import ssl
import types
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headgate.broker import EntityDeclaration, KeyRights, any_target
from headgate.message import Message
from headgate.protocols.amqp10.terminus import Accepted, Rejected
from headgate.protocols.servicebus.atom import ATOM, SERVICE_BUS
from headgate.server.metrics import open_descriptors, resident_bytes
from headgate.server.servicebus import administration
from server.amqp10_client import client_of
from server.running import RunningServer, running_server
from server.servicebus_client import peek_lock, settle
from servicebus_tokens import signed_token
from waiting import LIMIT_S, until_closed

NAMES = {"a": ATOM, "s": SERVICE_BUS}
SECRET = "the secret of the application"
FAR_S = 4_000_000_000

EMPTY = '<Filter i:type="CorrelationFilter"><Properties/></Filter>'
RULE = '<Filter i:type="SqlFilter"><SqlExpression>{}</SqlExpression></Filter>'


def body(kind: str, inner: str = "") -> bytes:
    return (
        f'<entry xmlns="{ATOM}"><content type="application/xml"><{kind} xmlns="{SERVICE_BUS}" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{inner}</{kind}></content></entry>'
    ).encode()


TOPIC, QUEUE, SUBSCRIPTION = (body(f"{kind}Description") for kind in ("Topic", "Queue", "Subscription"))


class Site:
    """Asks one server; each answer is a status and a document, or a text that is no XML."""

    def __init__(self, running: RunningServer, token: str | None = None) -> None:
        self.running = running
        self.headers = {} if token is None else {"Authorization": token}

    def raw(self, method: str, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost", self.running.ports["servicebus"], timeout=LIMIT_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, self.headers | given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ask(self, method: str, path: str, data: bytes | None = None, **headers: str) -> ElementTree.Element:
        status, text = self.raw(method, path, data, **headers)
        assert status in (200, 201), text
        return ElementTree.fromstring(text or "<empty/>")

    def refused(self, method: str, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str]:
        """The status and the detail of a refusal."""
        status, text = self.raw(method, path, data, **headers)
        root = ElementTree.fromstring(text)
        assert root.findtext("Code") == str(status), text
        return status, root.findtext("Detail") or ""

    def listed(self, path: str) -> list[str | None]:
        return [
            entry.findtext("a:title", namespaces=NAMES) for entry in self.ask("GET", path).findall("a:entry", NAMES)
        ]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path, listeners={"servicebus": 0}) as running:
        yield running


@pytest.fixture
def site(running: RunningServer) -> Site:
    return Site(running)


@pytest.fixture
def keyed(running: RunningServer) -> RunningServer:
    """A server with a topic and a queue, and keys, so that tokens count."""
    open_site = Site(running)
    for path, data in (("/orders", TOPIC), ("/orders/subscriptions/s", SUBSCRIPTION), ("/other", QUEUE)):
        open_site.ask("PUT", path, data)
    keys = running.context.broker.keys
    running.call(lambda: keys.add("app", KeyRights(send=".*", listen=".*", manage="^orders"), secret=SECRET))
    running.call(lambda: keys.add("reader", KeyRights(send=".*", listen=".*"), secret=SECRET))
    running.call(lambda: keys.add("owner", KeyRights(manage="^(other|target)$"), secret=SECRET))
    return running


def token(key: str = "app", resource: str = "sb://localhost", *, secret: str = SECRET, expires_s: int = FAR_S) -> str:
    return signed_token(resource, key, secret, expires_s=expires_s)


# One port for HTTP and HTTPS


def authority_of(running: RunningServer) -> Path:
    return Path(running.context.settings.root) / ".headgate" / "tls" / "authority.pem"


def test_a_client_has_tls_or_not_as_it_likes(running: RunningServer) -> None:
    port = running.ports["servicebus"]
    trusting = ssl.create_default_context(cafile=authority_of(running))
    for host in ("localhost", "127.0.0.1"):
        for connection in (
            http.client.HTTPConnection(host, port, timeout=LIMIT_S),
            http.client.HTTPSConnection(host, port, timeout=LIMIT_S, context=trusting),
        ):
            connection.request("GET", "/$namespaceinfo")
            text = connection.getresponse().read().decode()
            connection.close()
            scheme = "https" if isinstance(connection, http.client.HTTPSConnection) else "http"
            assert f"<id>{scheme}://{host}:{port}/$namespaceinfo</id>" in text


def test_clients_that_say_nothing_or_no_tls_after_all_end_and_disturb_nobody(tmp_path: Path) -> None:
    timeouts = {"handshake_s": 0.2}
    with running_server(tmp_path, listeners={"servicebus": 0}, timeouts=timeouts) as running:
        address = ("127.0.0.1", running.ports["servicebus"])
        beginnings = (b"", b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(300), b"GET /hea")
        clients = [socket.create_connection(address, LIMIT_S) for _ in beginnings]
        for client, beginning in zip(clients, beginnings, strict=True):
            client.sendall(beginning)
        gone = socket.create_connection(address, LIMIT_S)
        gone.close()
        assert Site(running).raw("GET", "/health") == (200, "healthy\n")
        for client in clients:
            with client:
                until_closed(client)
        assert Site(running).raw("GET", "/health") == (200, "healthy\n")


def test_a_server_stops_while_clients_say_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path, listeners={"servicebus": 0}) as running:
        client = socket.create_connection(("127.0.0.1", running.ports["servicebus"]), LIMIT_S)
        assert Site(running).raw("GET", "/health")[0] == 200
    with client:
        assert until_closed(client) == b""


# Health


def test_health_is_true_only_while_a_message_would_be_taken(
    running: RunningServer, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.raw("GET", "/health") == (200, "healthy\n")
    running.context.is_started = False
    assert site.raw("GET", "/health") == (503, "unhealthy\n")
    running.context.is_started = True
    with monkeypatch.context() as patched:
        full = types.SimpleNamespace(f_bavail=1, f_frsize=4096)
        patched.setattr(administration, "os", types.SimpleNamespace(statvfs=lambda _: full, access=os.access, W_OK=2))
        assert site.raw("GET", "/health") == (503, "unhealthy\n")
    assert site.raw("GET", "/health") == (200, "healthy\n")


# Who may ask


def test_an_open_service_asks_for_no_token_but_on_this_machine_by_its_name(site: Site) -> None:
    site.ask("PUT", "/orders", TOPIC)
    assert site.raw("GET", "/orders", Authorization="SharedAccessSignature sr=a&sig=b&se=1&skn=c")[0] == 200
    # A page of somebody's site whose name leads to this machine.
    status, detail = site.refused("DELETE", "/orders", Host="rebound.example.com")
    assert status == 401 and detail.startswith("SubCode=40100. Unauthorized.")
    assert site.listed("/$Resources/topics") == ["orders"]


def test_with_keys_a_token_is_needed_and_counts_for_what_its_key_manages(keyed: RunningServer) -> None:
    site = Site(keyed, token())
    assert site.listed("/$Resources/topics") == ["orders"]
    assert site.listed("/$Resources/queues") == []
    site.ask("PUT", "/orders/subscriptions/s/rules/r", body("RuleDescription", RULE.format("a = 1")))
    wrong = [
        (None, "GET", "/orders"),
        (token("reader"), "GET", "/orders"),
        (token(), "GET", "/other"),
        (token(), "DELETE", "/other"),
        (token(), "GET", "/nothing"),
        (token(), "PUT", "/new"),
        (token(resource="sb://localhost/other"), "GET", "/orders"),
        (token(secret="another"), "GET", "/orders"),
        (token("nobody"), "GET", "/orders"),
        (token(expires_s=1), "GET", "/orders"),
        ("Bearer abc", "GET", "/orders"),
        ("Basic Z3Vlc3Q6Z3Vlc3Q=", "GET", "/orders"),
    ]
    for given, method, path in wrong:
        status, detail = Site(keyed, given).refused(method, path, QUEUE if method == "PUT" else None)
        assert status == 401 and SECRET not in detail, (given, method, path)
    assert Site(keyed, token(resource="sb://localhost/orders")).raw("GET", "/orders/subscriptions/s")[0] == 200


def test_a_token_that_is_altered_by_a_bit_is_refused(keyed: RunningServer) -> None:
    right = token()
    assert Site(keyed, right).raw("GET", "/orders")[0] == 200
    for place in range(len(right)):
        altered = right[:place] + chr(ord(right[place]) ^ 1) + right[place + 1 :]
        assert Site(keyed, altered).raw("GET", "/orders")[0] == 401, altered


def test_forwarding_needs_the_right_to_send_to_the_target(keyed: RunningServer) -> None:
    only_orders = KeyRights(manage="^orders")
    keyed.call(lambda: keyed.context.broker.keys.add("narrow", only_orders, secret=SECRET))
    site = Site(keyed, token("narrow"))
    forwarding = body("SubscriptionDescription", "<ForwardTo>sb://localhost/other</ForwardTo>")
    assert site.refused("PUT", "/orders/subscriptions/f", forwarding)[0] == 401
    supplementary = {"ServiceBusSupplementaryAuthorization": token("owner", "sb://localhost/other")}
    made = site.ask("PUT", "/orders/subscriptions/f", forwarding, **supplementary)
    assert (made.findtext(".//s:ForwardTo", namespaces=NAMES) or "").endswith("/other")
    wrong = {"ServiceBusSupplementaryAuthorization": token("owner", secret="another")}
    assert site.refused("PUT", "/orders/subscriptions/g", forwarding, **wrong)[0] == 401


# What is told


def test_entities_are_told_with_addresses_that_clients_take_names_from(site: Site) -> None:
    base = f"http://localhost:{site.running.ports['servicebus']}"
    site.ask("PUT", "/Sales%2FOrders", TOPIC)
    site.ask("PUT", "/sales/orders/subscriptions/Red", SUBSCRIPTION)
    site.ask("PUT", "/sales/orders/subscriptions/red/rules/R", body("RuleDescription", RULE.format("a = 1")))
    for path, address in (
        ("/sales/orders", "/Sales/Orders"),
        ("/sales/orders/subscriptions/RED", "/Sales/Orders/Subscriptions/Red"),
        ("/sales/orders/Subscriptions/red/Rules/r", "/Sales/Orders/Subscriptions/Red/Rules/R"),
    ):
        entry = site.ask("GET", f"{path}?api-version=2021-05&enrich=False")
        assert entry.findtext("a:id", namespaces=NAMES) == base + address
        assert entry.findtext("a:title", namespaces=NAMES) == address.rpartition("/")[2] or path == "/sales/orders"
    assert site.listed("/sales/orders/Subscriptions/") == ["Red"]
    assert site.listed("/sales/orders/Subscriptions/red/Rules/") == ["$Default", "R"]
    site.ask("DELETE", "/SALES/orders")
    assert site.listed("/$Resources/topics") == []


def test_counts_are_those_of_messages_that_wait(site: Site) -> None:
    site.ask("PUT", "/orders", TOPIC)
    site.ask("PUT", "/orders/subscriptions/all", SUBSCRIPTION)
    site.ask("PUT", "/orders/subscriptions/none", SUBSCRIPTION)
    site.ask("DELETE", "/orders/subscriptions/none/rules/$Default")
    site.ask("PUT", "/queue", QUEUE)
    message = Message(b"x").encode()
    with client_of(site.running.ports["amqp"], mechanism="MSSBCBS", response=b"") as client:
        for address in ("orders", "queue"):
            assert set(map(type, client.send(client.sender(address), *[message] * 3))) == {Accepted}
    counts = {}
    for path in ("/orders/subscriptions/all", "/orders/subscriptions/none", "/queue"):
        entry = site.ask("GET", path)
        counts[path] = entry.findtext(".//s:MessageCount", namespaces=NAMES)
    assert counts == {"/orders/subscriptions/all": "3", "/orders/subscriptions/none": "0", "/queue": "3"}
    with client_of(site.running.ports["amqp"], mechanism="MSSBCBS", response=b"") as client:
        link = peek_lock(client, "queue")
        one, *_ = client.receive(link, 3)
        assert settle(client, link, one.id, one.id, Rejected()) == Rejected()
    letters = site.ask("GET", "/QUEUE/$deadletterqueue")
    assert letters.findtext("a:title", namespaces=NAMES) == "queue/$DeadLetterQueue"
    assert letters.findtext(".//s:MessageCount", namespaces=NAMES) == "1"
    for path in ("/queue/$Transfer/$DeadLetterQueue", "/orders/subscriptions/all/$DeadLetterQueue"):
        assert site.ask("GET", path).findtext(".//s:MessageCount", namespaces=NAMES) == "0"
    topic = site.ask("GET", "/orders")
    assert topic.findtext(".//s:SubscriptionCount", namespaces=NAMES) == "2"
    assert int(topic.findtext(".//s:SizeInBytes", namespaces=NAMES) or 0) > 100


def test_pages_lead_through_a_list_and_the_last_names_no_other(site: Site) -> None:
    for name in "abcde":
        site.ask("PUT", f"/{name}", QUEUE)
    path: str | None = "/$Resources/Queues?$top=2&api-version=2021-05"
    pages = []
    while path is not None:
        feed = site.ask("GET", path)
        pages.append([entry.findtext("a:title", namespaces=NAMES) for entry in feed.findall("a:entry", NAMES)])
        following = feed.find("a:link[@rel='next']", NAMES)
        path = None if following is None else (following.get("href") or "").partition(":")[2].partition("/$")[2]
        path = None if path is None else f"/${path}"
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert site.listed("/$Resources/queues?$skip=4&$top=100") == ["e"]
    assert site.listed("/$Resources/queues?$skip=9") == []
    assert site.refused("GET", "/$Resources/queues?$skip=-1")[0] == 400


def test_an_update_leaves_what_service_bus_has_no_word_for(site: Site) -> None:
    site.ask("PUT", "/q", QUEUE)
    entities = site.running.context.broker.entities
    changed = site.running.call(lambda: entities.find("q").queue.settings.changed({"backoff_ms": [5]}))
    told: list[object] = []
    settings = site.running.call(lambda: entities.find("q").settings)
    changed_queue = EntityDeclaration("q", settings, delivery=changed)
    site.running.call(lambda: entities.update(changed_queue, told.append, check_target=any_target))
    site.running.until(lambda: told)
    wanted = body("QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>")
    site.ask("PUT", "/Q", wanted, If_Match="*")
    found = site.running.call(lambda: entities.find("q").queue.settings)
    assert (found.backoff_ms, found.max_delivery_count) == ((5,), 3)


# What is refused


def test_what_cannot_be_had_is_refused_in_the_words_of_service_bus(site: Site) -> None:
    site.ask("PUT", "/orders", TOPIC)
    site.ask("PUT", "/queue", QUEUE)
    site.ask("PUT", "/orders/subscriptions/s", SUBSCRIPTION)
    rules = "/orders/subscriptions/s/rules"
    sql = body("RuleDescription", RULE.format("color = AND"))
    refusals = [
        ("GET", "/nothing", None, 404, "The messaging entity 'nothing' could not be found."),
        ("GET", "/nothing/subscriptions/s", None, 404, "The messaging entity 'nothing' could not be found."),
        ("GET", "/orders/subscriptions/x", None, 404, "The messaging entity 'orders/x' could not be found."),
        ("GET", "/queue/subscriptions/x", None, 404, "could not be found."),
        ("GET", f"{rules}/x", None, 404, "could not be found."),
        ("DELETE", f"{rules}/x", None, 404, "could not be found."),
        ("GET", "/a//b", None, 404, "could not be found."),
        ("GET", "/orders/$DeadLetterQueue", None, 404, "'orders/$DeadLetterQueue' could not be found."),
        ("DELETE", "/queue/$DeadLetterQueue", None, 405, "DELETE is not for this path"),
        (
            "PUT",
            f"{rules}/empty",
            body("RuleDescription", EMPTY),
            400,
            "The correlation filter is not valid: found no condition",
        ),
        ("PUT", "/new", body("QueueDescription", "<ForwardTo>queue/new</ForwardTo>"), 400, "Entity: 'queue/new'"),
        ("PUT", "/ORDERS", TOPIC, 409, "The messaging entity 'orders' already exists."),
        ("PUT", "/orders", QUEUE, 409, "already exists."),
        ("PUT", "/orders/subscriptions/S", SUBSCRIPTION, 409, "already exists."),
        ("PUT", f"{rules}/$default", body("RuleDescription", RULE.format("1=1")), 409, "already exists."),
        ("PUT", f"{rules}/bad", sql, 400, "[Token line=1, column=9, Token in error=AND, Additional details= "),
        ("PUT", f"{rules}/$bad", body("RuleDescription", RULE.format("1=1")), 400, "$Default"),
        ("PUT", f"{rules}/{'a' * 51}", body("RuleDescription", RULE.format("1=1")), 400, "51 characters"),
        ("PUT", f"{rules}/long", body("RuleDescription", RULE.format(f"a = '{'x' * 1024}'")), 400, "1024"),
        ("PUT", f"{rules}/no", TOPIC, 400, "found a TopicDescription"),
        ("PUT", "/new", SUBSCRIPTION, 400, "found a SubscriptionDescription"),
        ("PUT", "/new", body("QueueDescription", "<LockDuration>P1D</LockDuration>"), 400, "lock_ms"),
        ("PUT", "/new", body("TopicDescription", "<EnablePartitioning>true</EnablePartitioning>"), 400, "Partitioning"),
        (
            "PUT",
            "/orders/subscriptions/x",
            body("SubscriptionDescription", "<Status>SendDisabled</Status>"),
            400,
            "Status",
        ),
        ("PUT", "/new", b"", 400, "no XML"),
        ("POST", "/orders", None, 405, "POST is not for this path"),
        ("DELETE", "/$namespaceinfo", None, 405, "DELETE is not for this path"),
        ("PUT", "/$Resources/topics", TOPIC, 405, "PUT is not for this path"),
    ]
    for method, path, data, status, text in refusals:
        found, detail = site.refused(method, path, data)
        assert (found, text in detail) == (status, True), (method, path, detail)
        sub_code = (
            "40400. Bad Request. The auto forwarding destination entity" if "Entity: '" in text else f"{status}00."
        )
        assert f"SubCode={sub_code}" in detail and "TrackingId:" in detail
    for path, data, status in (("/nothing", TOPIC, 404), ("/orders", QUEUE, 400), (f"{rules}/x", sql, 404)):
        assert site.refused("PUT", path, data, If_Match="*")[0] == status
    assert site.listed("/$Resources/topics") == ["orders"] and site.listed("/$Resources/queues") == ["queue"]
    assert site.listed(rules) == ["$Default"] and site.listed("/orders/subscriptions") == ["s"]


BOMB = (
    '<!DOCTYPE b [<!ENTITY a0 "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    + "]>"
)


@pytest.mark.parametrize(
    ("head", "entity"),
    [
        (BOMB, "&a9;"),
        ('<!DOCTYPE e [<!ENTITY x SYSTEM "{file}">]>', "&x;"),
        ('<!DOCTYPE e [<!ENTITY % x SYSTEM "http://127.0.0.1:{port}/x"> %x;]>', ""),
        ('<!DOCTYPE e SYSTEM "http://127.0.0.1:{port}/x">', ""),
    ],
    ids=["bomb", "file", "parameter", "external"],
)
def test_bombs_and_external_entities_are_refused_before_anything_is_read(
    site: Site, tmp_path: Path, head: str, entity: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not tell")
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        port = elsewhere.getsockname()[1]
        document = head.replace("{file}", secret.as_uri()).replace("{port}", str(port)).encode()
        document += body("TopicDescription", f"<UserMetadata>{entity}</UserMetadata>")
        status, detail = site.refused("PUT", "/orders", document)
        assert status == 400 and "document type" in detail and "do not tell" not in detail
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert site.listed("/$Resources/topics") == []


def test_requests_that_break_off_or_are_too_long_leave_no_trace(site: Site) -> None:
    whole = b"PUT /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(TOPIC) + TOPIC
    for length in [1, 5, 30, *range(60, len(whole), 41), len(whole) - 1]:
        with socket.create_connection(("127.0.0.1", site.running.ports["servicebus"]), LIMIT_S) as client:
            client.sendall(whole[:length])
            client.shutdown(socket.SHUT_WR)
            until_closed(client)
    assert site.listed("/$Resources/topics") == []
    assert site.refused("PUT", "/orders", b" " * 300_000)[0] == 413
    assert site.listed("/$Resources/topics") == []


def test_lengths_that_are_wrong_and_chunks_that_are_garbage_are_refused_and_leave_nothing(
    running: RunningServer, site: Site, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance, port = random.Random(seed), running.ports["servicebus"]
    lengths = ("-1", "0x10", "1, 2", "9" * 30, "", "1e3", str(len(TOPIC) - 1), str(len(TOPIC) + 1), "999999999999")
    heads = [f"Content-Length: {length}".encode() for length in lengths]
    heads += [b"Transfer-Encoding: " + coding for coding in (b"chunked", b"gzip, chunked", b"chunked, chunked", b"x")]
    heads += [b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Expect: 100-continue\r\nContent-Length: 9"]

    def chunk(size: bytes, data: bytes) -> bytes:
        return size + b"\r\n" + data + b"\r\n"

    bodies = [
        TOPIC, TOPIC[:50], chunk(b"%x" % len(TOPIC), TOPIC) + b"0\r\n\r\n", chunk(b"ffffffffffffffff", TOPIC),
        chunk(b"-5", TOPIC), chunk(b"zz", TOPIC), chunk(b"5;" + b"x" * 70_000, b"abcde"), chunk(b"3", TOPIC),
        b"\r\n" * 99, chunk(b"1", b"x") * 2_000 + b"0\r\n\r\n", chunk(b"10000", bytes(65536)) * 20 + b"0\r\n\r\n",
    ]  # fmt: skip

    def rounds(count: int) -> None:
        for _ in range(count):
            method = chance.choice((b"PUT", b"GET", b"DELETE", b"PATCH", b"P\xffT", b"get"))
            path = chance.choice(
                (b"/orders", b"/a/subscriptions/b", b"/%ff%00/..", b"/" + b"x" * 300, b"*", b"//", b"/\xff")
            )
            said = b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (method, path, chance.choice(heads))
            said += chance.choice(bodies)
            if chance.random() < 0.3:
                place = chance.randrange(len(said))
                said = said[:place] + chance.randbytes(chance.choice((1, 30))) + said[place:]
            with socket.create_connection(("127.0.0.1", port), LIMIT_S) as client:
                # The server may have closed before all of it came.
                with contextlib.suppress(OSError):
                    client.sendall(said[: chance.choice((len(said), chance.randrange(len(said))))])
                    client.shutdown(socket.SHUT_WR)
                answer = until_closed(client)
            assert not answer or answer.startswith(b"HTTP/1.1 "), answer
            assert b"HTTP/1.1 500" not in answer, (said, answer)

    with caplog.at_level(logging.ERROR):
        rounds(30)
        # A whole request makes it, now or among the later ones, and it has files open.
        site.raw("PUT", "/orders", TOPIC)
        descriptors, memory = open_descriptors(), resident_bytes()
        rounds(150)
    assert not caplog.records, caplog.text
    running.until(lambda: open_descriptors() <= descriptors)
    assert resident_bytes() < memory + 16_000_000
    # Only a whole request makes something.
    assert site.listed("/$Resources/topics") in ([], ["orders"]) and site.raw("GET", "/health")[0] == 200


def test_altered_documents_are_taken_or_refused_and_never_a_fault(site: Site) -> None:
    site.ask("PUT", "/orders", TOPIC)
    rule = body(
        "RuleDescription",
        '<Filter i:type="CorrelationFilter"><Label>x</Label><Properties><KeyValueOfstringanyType><Key>k</Key>'
        '<Value i:type="d:int" xmlns:d="http://www.w3.org/2001/XMLSchema">5</Value></KeyValueOfstringanyType>'
        '</Properties></Filter><Action i:type="SqlRuleAction"><SqlExpression>SET a = 1</SqlExpression></Action>',
    )
    properties = "<LockDuration>PT1M</LockDuration><MaxDeliveryCount>3</MaxDeliveryCount><Status>Active</Status>"
    subscription = body("SubscriptionDescription", properties)
    chance = random.Random(20)
    site.ask("PUT", "/orders/subscriptions/s", SUBSCRIPTION)
    for number in range(300):
        path, document = chance.choice(
            [(f"/orders/subscriptions/s{number}", subscription), (f"/orders/subscriptions/s/rules/r{number}", rule)]
        )
        altered = bytearray(document)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(altered))
            match chance.randrange(3):
                case 0:
                    altered[place] ^= 1 << chance.randrange(8)
                case 1:
                    del altered[place : place + chance.randint(1, 20)]
                case _:
                    altered[place:place] = altered[place : place + chance.randint(1, 20)]
        status, text = site.raw("PUT", path, bytes(altered))
        assert status in (201, 400, 409), (status, text, bytes(altered))
    assert site.raw("GET", "/health")[0] == 200
