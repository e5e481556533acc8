"""One row of the table of endpoints: how it is reached, what it takes and answers, and who handles it.

The checks of a request and the description of the API are made of the same row. Schemas are JSON Schema
2020-12, as OpenAPI 3.1 has them. No state.

Source: OpenAPI 3.1.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.parameters import Parameter

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Schema: TypeAlias = Mapping[str, object]

INTEGER: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
ANYTHING: Final[Schema] = {}
BASE64: Final[Schema] = {"type": ["string", "null"], "contentEncoding": "base64"}
OBJECT: Final[Schema] = {"type": "object"}
STAT: Final[Schema] = {"$ref": "#/components/schemas/Stat"}


def fields(**properties: Schema) -> Schema:
    """Return the schema of an object that has all of these fields, and perhaps more."""
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def encoded(data: bytes | None) -> str | None:
    """Return data as BASE64 has it."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def list_of(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def nullable(kind: str) -> Schema:
    """Return the schema of a value of a kind, or null."""
    return {"type": [kind, "null"]}


def page_of(items: Schema) -> Schema:
    """Return the schema of a page: its items, and what to send as `after` for the next page, or null."""
    return fields(items=list_of(items), next_after={"type": ["string", "integer", "null"]})


class AdminEndpoint(NamedTuple):
    """One row of the table.

    Attributes:
        method: of HTTP; GET answers HEAD, too.
        path: with {names} of parameters in it.
        handler: what answers.
        summary: what it is for, in a sentence.
        parameters: of the query.
        places: of the path.
        body: schema of the JSON body it takes; None: it takes none.
        optional_body: whether no body is one, too.
        answer: schema of its answer with 200.
        content: content types of that answer.
        status: of a good answer, besides 200.
        operators: whether a reader's token is not enough, where there are tokens.
    """

    method: str
    path: str
    handler: Handler
    summary: str = ""
    parameters: tuple[Parameter, ...] = ()
    places: tuple[Parameter, ...] = ()
    body: Schema | None = None
    optional_body: bool = False
    answer: Schema = ANYTHING
    content: tuple[str, ...] = ("application/json",)
    status: tuple[int, ...] = ()
    operators: bool = False
