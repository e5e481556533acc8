"""The description of the API, OpenAPI 3.1, made of the table of endpoints.

Decides how a row becomes an operation; nothing is written twice, so what is described is what is checked. No
state.

Source: docs/reference/http.md; RFC 9457 for problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, get_type_hints

from quorum import __version__
from quorum.admin.endpoint import AdminEndpoint, answer
from quorum.admin.reading import Field, body_schema
from quorum.admin.view import PROBLEM
from quorum.client import Stat

_COMPONENTS: Final = {
    # Source: RFC 9457. Of those that it does not know: what to do about it, the same as detail, what is wrong
    # in the query or body, and whether nothing was done and never will be.
    "Problem": answer(
        ("field", "definite", "retriable"),
        type=str,
        title=str,
        status=int,
        detail=str,
        remedy=str,
        error=str,
        field=str,
        definite=bool,
        retriable=bool,
    ),
    "Stat": answer(**get_type_hints(Stat)),
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
            "title": "Quorate, admin port",
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
            "content": {"application/json": {"schema": body_schema(endpoint.body)}},
        }
    return operation


def _parameter(field: Field, where: str) -> dict[str, object]:
    return {
        "name": field.name,
        "in": where,
        "required": field.needed,
        "description": field.says.text,
        "schema": field.schema(),
    }
