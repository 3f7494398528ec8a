"""HTTP: its listeners, and the API as declared endpoints, which give routes, the OpenAPI document and the reference.

    Endpoint, Group                     what can be asked for below `/api`, as data
    Call, Answer, stored, EventStream   one request to an endpoint, decoded, and its answer
    described, ForceQuery               types with a description; a query that several endpoints have
    ANY_USER, ADMINISTRATORS            words for permissions
    RequestRefusedError                 a status and a reason, for refusals that are no errors of the broker
    Problem, problem_of                 an error as problem details
    Access, Identity                    the users of requests, by password, token or session
    Router                              finds the endpoint of a method and a path; also for commands that work on files
    openapi_document                    the OpenAPI document of groups
    HttpListener                        one listener at a socket: connections with a time limit, plain or with TLS
    peer_of, body_of                    who sends a request, and its body
    application                         the application of one listener: console, health, metrics, endpoints

Hidden: sessions of browsers (`sessions`), errors as problem details (`problem`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.server.http.access import Access, Identity
    from headgate.server.http.endpoint import (
        ADMINISTRATORS,
        ANY_USER,
        Answer,
        Call,
        Endpoint,
        EventStream,
        ForceQuery,
        Group,
        described,
        stored,
    )
    from headgate.server.http.listener import HttpListener
    from headgate.server.http.openapi import openapi_document
    from headgate.server.http.problem import Problem, RequestRefusedError, problem_of
    from headgate.server.http.requests import body_of, peer_of
    from headgate.server.http.router import Router
    from headgate.server.http.site import application
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
