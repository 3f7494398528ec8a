"""Atom documents of Service Bus's administration: entries with a description each, feeds of entries, errors.

Requests are read by namespaces, with any prefixes and in any order. A document type, and with it every entity of its
own, ends the parse. Responses use the spellings that clients look for (`i:type`). Source: servicebus_wire, section 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from headgate.errors import ConfigError
from headgate.protocols.servicebus.dates import format_date

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"

_MAX_DEPTH = 32
_MAX_ELEMENTS = 20_000
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"})


# Reading


@dataclass(slots=True)
class XmlElement:
    """An element: its name, `type` attribute (`i:type`, without its prefix), text and children."""

    namespace: str
    name: str
    type: str = ""
    text: str = ""
    children: list[XmlElement] = field(default_factory=list)

    def child(self, name: str, namespace: str = SERVICE_BUS) -> XmlElement | None:
        """The first child of a name, None without one."""
        return next((each for each in self.children if each.name == name and each.namespace == namespace), None)

    def child_text(self, name: str) -> str | None:
        """The text of a child of Service Bus's; None without it."""
        found = self.child(name)
        return None if found is None else found.text

    def each(self, name: str) -> Iterator[XmlElement]:
        """The children of a name of Service Bus's."""
        return (each for each in self.children if each.name == name and each.namespace == SERVICE_BUS)


def parse_xml(data: bytes) -> XmlElement:
    """The root of a document in UTF-8. Raises ConfigError for an invalid one, or a document type. Cost: linear."""
    reader = _Reader()
    # The encoding is not the document's to choose: codecs of every kind could be named.
    parser = expat.ParserCreate(encoding="utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ConfigError(f"the body is no XML: {error}") from None
    assert reader.root is not None
    return reader.root


class _Reader:
    def __init__(self) -> None:
        self.root: XmlElement | None = None
        self._open: list[XmlElement] = []
        self._count = 0

    def start(self, qualified: str, attributes: dict[str, str]) -> None:
        namespace, _, name = qualified.rpartition(" ")
        given = attributes.get(f"{INSTANCE} type", "")
        element = XmlElement(namespace, name, given.rpartition(":")[2].strip())
        self._count += 1
        if len(self._open) >= _MAX_DEPTH or self._count > _MAX_ELEMENTS:
            raise ConfigError(f"the body has more than {_MAX_DEPTH} levels, or more than {_MAX_ELEMENTS} elements")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _name: str) -> None:
        self._open.pop()

    def characters(self, text: str) -> None:
        self._open[-1].text += text


def _refuse_doctype(*_declared: object) -> None:
    raise ConfigError("the body has a document type, which is not read")


def parse_entry(data: bytes) -> XmlElement:
    """The description in the content of an entry. Raises ConfigError."""
    root = parse_xml(data)
    content = root.child("content", ATOM) if (root.namespace, root.name) == (ATOM, "entry") else None
    found = [] if content is None else [each for each in content.children if each.namespace == SERVICE_BUS]
    if len(found) != 1:
        raise ConfigError("the body is no Atom entry with one description as its content")
    return found[0]


def read_boolean(text: str) -> bool:
    """Whether a text is true. Raises ConfigError unless it is true or false."""
    found = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if found is None:
        raise ConfigError(f"found {text!r}, expected true or false")
    return found


# Writing


def escaped(text: str) -> str:
    """A text inside XML; a character that XML does not have becomes U+FFFD."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text).translate(_ESCAPED)


def element(name: str, text: str) -> str:
    """An element that holds a text."""
    return f"<{name}>{escaped(text)}</{name}>"


def described(name: str, inner: str) -> str:
    """A description of that name, of elements as XML."""
    return f'<{name} xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}">{inner}</{name}>'


@dataclass(frozen=True, slots=True)
class Entry:
    """One entity of a response: `address` is a URL whose path names it, `content` its description, as XML."""

    address: str
    title: str
    published_ms: int
    updated_ms: int
    content: str

    def document(self) -> bytes:
        """The response with this entry alone."""
        return self.xml().encode()

    def xml(self) -> str:
        """The entry as XML, with its namespace."""
        return (
            f'<entry xmlns="{ATOM}">{element("id", self.address)}<title type="text">{escaped(self.title)}</title>'
            f"{element('published', format_date(self.published_ms))}{element('updated', format_date(self.updated_ms))}"
            f'<link rel="self" href="{escaped(self.address)}"/>'
            f'<content type="application/xml">{self.content}</content></entry>'
        )


def feed(address: str, title: str, entries: Sequence[Entry], *, updated_ms: int, next_address: str | None) -> bytes:
    """A response with a page of entries; clients ask for the next page where there is an address of it."""
    following = "" if next_address is None else f'<link rel="next" href="{escaped(next_address)}"/>'
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{escaped(title)}</title>{element("id", address)}'
        f"{element('updated', format_date(updated_ms))}"
        f'<link rel="self" href="{escaped(address)}"/>{following}{"".join(each.xml() for each in entries)}</feed>'
    ).encode()


def error_document(status: int, detail: str) -> bytes:
    """A response that says why something was refused."""
    return f"<Error><Code>{status}</Code>{element('Detail', detail)}</Error>".encode()
