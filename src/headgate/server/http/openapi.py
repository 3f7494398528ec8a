"""The OpenAPI 3.1 document of the API, made from the declarations of its endpoints: `GET /api/openapi.json`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import msgspec

from headgate.server.http.endpoint import Answer, Call, Endpoint, Group, described
from headgate.server.http.problem import MEDIA_TYPE, Problem
from headgate.version import __version__

_REFERENCES = "#/components/schemas/{name}"
_SECURITY: dict[str, dict[str, str]] = {
    "basic": {"type": "http", "scheme": "basic"},
    "token": {"type": "http", "scheme": "bearer"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "headgate-session-15672",
        "description": "What `POST /api/session` sets; the number is the port of the listener.",
    },
}
Schema = dict[str, Any]


def document_endpoint(groups: Iterable[Group]) -> Group:
    """The endpoint that gives the document of some groups, and of itself."""
    listed = tuple(groups)

    async def answer(_call: Call) -> Answer:
        return Answer(document())

    @functools.cache
    def document() -> Schema:
        return openapi_document((group, *listed))

    endpoint = Endpoint(
        "GET",
        "openapi.json",
        "This list of requests, as an OpenAPI 3.1 document.",
        answer,
        permission="none",
        answer=described(dict[str, Any], "An OpenAPI 3.1 document."),
        needs_login=False,
    )
    group = Group("The API", "What can be asked for.", (endpoint,))
    return group


def openapi_document(groups: Iterable[Group]) -> Schema:
    """The document of all endpoints of some groups."""
    listed = list(groups)
    endpoints = [endpoint for group in listed for endpoint in group.endpoints]
    types = dict.fromkeys(
        kind for each in endpoints for kind in (each.query, each.body, each.answer) if kind is not None
    )
    kinds = [*types, Problem]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCES)
    by_type = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Schema] = {}
    for group in listed:
        for endpoint in group.endpoints:
            operation = _operation(group, endpoint, by_type, components)
            paths.setdefault(f"/api/{endpoint.path}", {})[endpoint.method.lower()] = operation
    for endpoint in endpoints:
        # Shown as parameters. Types with one name have that of their module before it.
        components.pop(_name(by_type[endpoint.query]), None)
    _make_uniform(components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "version": __version__,
            "description": "Streams, topics, queues, consumers and users of a Headgate server.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{name: []} for name in _SECURITY],
        "tags": [{"name": group.title, "description": group.meaning} for group in listed],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


def _name(reference: Schema) -> str:
    return str(reference["$ref"].rpartition("/")[2])


def _make_uniform(schema: Any) -> None:
    """Say of a pair of integers that its items are integers, which generators of clients know.

    What msgspec says, `prefixItems` and `items: false`, means the same, and some refuse the document for it.
    """
    if isinstance(schema, list):
        for each in schema:
            _make_uniform(each)
    elif isinstance(schema, dict):
        first, *others = schema.get("prefixItems", [None])
        if first is not None and all(each == first for each in others):
            schema["items"] = schema.pop("prefixItems")[0]
        for each in schema.values():
            _make_uniform(each)


def _operation(group: Group, endpoint: Endpoint, by_type: dict[Any, Schema], components: dict[str, Schema]) -> Schema:
    operation: Schema = {
        "operationId": _identifier(endpoint),
        "tags": [group.title],
        "summary": endpoint.summary,
        "description": f"Permission: {endpoint.permission}.",
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint, by_type, components)],
        "responses": _responses(group, endpoint, by_type),
    }
    if endpoint.body is not None:
        content: Schema = {"schema": by_type[endpoint.body]}
        if endpoint.example is not None:
            content["example"] = endpoint.example
        operation["requestBody"] = {"required": _is_required(endpoint.body), "content": {"application/json": content}}
    if not endpoint.needs_login:
        operation["security"] = []
    return operation


def _identifier(endpoint: Endpoint) -> str:
    words = endpoint.path.replace("-", "_").replace(".", "_").replace("{", "").replace("}", "").split("/")
    return "_".join((endpoint.method.lower(), *words))


def _path_parameters(endpoint: Endpoint) -> Iterator[Schema]:
    for part in endpoint.parts:
        if part.startswith("{"):
            yield {
                "name": part[1:-1],
                "in": "path",
                "required": True,
                "description": "Percent-encoded, also a / in it.",
                "schema": {"type": "string", "minLength": 1},
            }


def _query_parameters(
    endpoint: Endpoint, by_type: dict[Any, Schema], components: dict[str, Schema]
) -> Iterator[Schema]:
    schema = components.get(_name(by_type[endpoint.query]), {})
    for parameter, its_schema in schema.get("properties", {}).items():
        plain = dict(its_schema)
        description = plain.pop("description", "")
        yield {
            "name": parameter,
            "in": "query",
            "required": parameter in schema.get("required", ()),
            "description": description,
            "schema": plain,
        }


def _responses(group: Group, endpoint: Endpoint, by_type: dict[Any, Schema]) -> Schema:
    responses: Schema = {}
    for status in endpoint.statuses:
        response: Schema = {"description": HTTPStatus(status).phrase}
        if endpoint.answer is not None and status != HTTPStatus.NO_CONTENT:
            response["content"] = {endpoint.media_type: {"schema": by_type[endpoint.answer]}}
        responses[str(status)] = response
    if group.is_foreign:
        refused: Schema = {"content": {"application/json": {"schema": _FOREIGN}}}
    else:
        refused = {"content": {MEDIA_TYPE: {"schema": by_type[Problem]}}}
    for status in error_statuses(endpoint):
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, **refused})
    responses["default"] = {"description": "Another refusal", **refused}
    return responses


_FOREIGN: Schema = {
    "type": "object",
    "description": "Why a request was refused, in the form of RabbitMQ.",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
}


def error_statuses(endpoint: Endpoint) -> list[int]:
    """The statuses of errors that an endpoint may have, as far as its declaration says."""
    found = set(endpoint.errors)
    if endpoint.needs_login:
        found |= {401, 403, 503}
    if endpoint.body is not None:
        found |= {400, 413}
    if endpoint.query.__struct_fields__:
        found.add(400)
    if "{" in endpoint.path:
        found.add(404)
    return sorted(found)


def _is_required(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and any(field.required for field in msgspec.structs.fields(kind))
    )
