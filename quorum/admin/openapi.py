"""The description of the API, OpenAPI 3.1, made of the table of endpoints.

Decides how a row becomes an operation; nothing is written twice, so what is described is what is checked. No
state.

Source: OpenAPI 3.1; RFC 9457 for problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quorum import __version__
from quorum.admin.endpoint import BOOLEAN, INTEGER, STRING, AdminEndpoint, Schema, fields
from quorum.admin.parameters import Parameter
from quorum.admin.view import PROBLEM

_COMPONENTS: Final[dict[str, Schema]] = {
    "Problem": {
        **fields(type=STRING, title=STRING, status=INTEGER, detail=STRING, remedy=STRING, error=STRING),
        "properties": {
            "type": STRING,
            "title": STRING,
            "status": INTEGER,
            "detail": STRING,
            #: what to do about it
            "remedy": STRING,
            #: the same as detail
            "error": STRING,
            #: what is wrong, in the query or the body
            "field": STRING,
            #: whether nothing was done, and never will be
            "definite": BOOLEAN,
            "retriable": BOOLEAN,
        },
    },
    "Stat": fields(
        czxid=INTEGER,
        mzxid=INTEGER,
        ctime_ms=INTEGER,
        mtime_ms=INTEGER,
        version=INTEGER,
        cversion=INTEGER,
        aversion=INTEGER,
        ephemeral_owner=INTEGER,
        data_length=INTEGER,
        children_count=INTEGER,
        pzxid=INTEGER,
    ),
}


def describe(endpoints: Iterable[AdminEndpoint]) -> dict[str, object]:
    """Return the document."""
    paths: dict[str, dict[str, object]] = {}
    for endpoint in endpoints:
        operations = paths.setdefault(endpoint.path, {})
        operations[endpoint.method.lower()] = _operation(endpoint)
        if endpoint.method == "GET":
            operations["head"] = _operation(endpoint._replace(method="HEAD", content=()))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quorate, admin port of a node",
            "version": __version__,
            "description": "Errors are problems (RFC 9457) that say what to do.",
        },
        "paths": paths,
        "components": {"schemas": _COMPONENTS},
    }


def _operation(endpoint: AdminEndpoint) -> dict[str, object]:
    content = {kind: {"schema": endpoint.answer} for kind in endpoint.content}
    good = {"description": endpoint.summary, "content": content}
    problem = {
        "description": "A problem, and what to do about it",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    operation: dict[str, object] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{endpoint.path}",
        "responses": {**{str(status): good for status in (200, *endpoint.status)}, "default": problem},
    }
    parameters = [
        *(_parameter(parameter, "path") for parameter in endpoint.places),
        *(_parameter(parameter, "query") for parameter in endpoint.parameters),
    ]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.optional_body,
            "content": {"application/json": {"schema": endpoint.body}},
        }
    return operation


def _parameter(parameter: Parameter, where: str) -> dict[str, object]:
    return {
        "name": parameter.name,
        "in": where,
        "required": where == "path" or parameter.default is None,
        "description": parameter.text,
        "schema": parameter.schema(),
    }
