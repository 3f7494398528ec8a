from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headgate.errors import ConfigError
from headgate.protocols.servicebus import Entry, error_document, feed, parse_entry
from headgate.protocols.servicebus.atom import ATOM, SERVICE_BUS, escaped, parse_xml

CONTENT = f'<TopicDescription xmlns="{SERVICE_BUS}"><UserMetadata>a &amp; b</UserMetadata></TopicDescription>'


def entry(content: str = CONTENT, head: str = "") -> bytes:
    return f'{head}<entry xmlns="{ATOM}"><content type="application/xml">{content}</content></entry>'.encode()


def test_the_description_is_found_whatever_prefixes_a_client_chose() -> None:
    prefixed = (
        f'<a:entry xmlns:a="{ATOM}" xmlns:b="{SERVICE_BUS}"><a:updated/><a:content>\n'
        "<b:TopicDescription><b:UserMetadata>a &amp; b</b:UserMetadata></b:TopicDescription></a:content></a:entry>"
    )
    for body in (entry(), prefixed.encode(), entry(head="<?xml version='1.0' encoding='utf-8'?>\n")):
        found = parse_entry(body)
        assert (found.name, found.child_text("UserMetadata")) == ("TopicDescription", "a & b")


BOMB = (
    '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{n} "{"&a" + str(n - 1) + ";" if n else "&a;"}{"&a;" * 9}">' for n in range(9))
    + "]>"
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (entry(CONTENT.replace("a &amp; b", "&a8;"), BOMB), "document type"),
        (entry(CONTENT.replace("a &amp; b", "&x;"), '<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>'), "type"),
        (entry(head='<!DOCTYPE e SYSTEM "http://127.0.0.1/e.dtd">'), "document type"),
        (entry(CONTENT.replace("a &amp; b", "&x;")), "undefined entity"),
        (entry()[:-3], "no XML"),
        (b"", "no element"),
        (b"<a>\xff</a>", "no XML"),
        (b"<a>" * 1000 + b"</a>" * 1000, "levels"),
        (b"<a>" + b"<b/>" * 30_000 + b"</a>", "elements"),
        (b"<entry/>", "no Atom entry"),
        (entry(""), "no Atom entry"),
        (entry(CONTENT + CONTENT), "no Atom entry"),
        (entry("<TopicDescription/>"), "no Atom entry"),
    ],
)
def test_what_is_no_entry_with_one_description_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_entry(body)


def test_the_encoding_is_not_the_documents_to_choose() -> None:
    assert parse_xml("<?xml version='1.0' encoding='rot13'?><a>é</a>".encode()).text == "é"


def test_texts_survive_and_characters_that_xml_lacks_are_replaced() -> None:
    text = "<&>\"'\t\n\rä😀"
    assert ElementTree.fromstring(f"<a>{escaped(text)}</a>").text == text
    assert escaped("a\x00b\ud800c\ufffe") == "a\ufffdb\ufffdc\ufffd"


def test_a_page_says_where_the_next_one_is_and_the_last_does_not() -> None:
    one = Entry("http://h/a/Subscriptions/s", "s & t", 0, 1_000, CONTENT)
    names = {"a": ATOM}
    for address in ("http://h/$Resources/topics?$skip=1&$top=1", None):
        root = ElementTree.fromstring(
            feed("http://h/$Resources/topics", "topics", [one], updated_ms=0, next_address=address)
        )
        links = [link.get("href") for link in root.findall("a:link", names)]
        assert links == ["http://h/$Resources/topics", *([] if address is None else [address])]
        found = root.find("a:entry", names)
        assert found is not None and found.findtext("a:title", namespaces=names) == "s & t"
        assert found.findtext("a:updated", namespaces=names) == "1970-01-01T00:00:01Z"


def test_a_refusal_has_its_code_and_why() -> None:
    root = ElementTree.fromstring(error_document(409, "a <b> is there"))
    assert (root.findtext("Code"), root.findtext("Detail")) == ("409", "a <b> is there")
