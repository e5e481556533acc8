"""Endpoints, each declared once: a handler, whose annotations say what it takes and answers, under a path.

Checks of a request and the description of the API follow from the same declaration. A query or a body is a
NamedTuple, an answer a mapping that is annotated with its schema. Schemas are JSON Schema 2020-12, as OpenAPI
3.1 has them. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from aiohttp import web

from quorum.admin.reading import Field, Schema, fields_of, read_body, read_query
from quorum.admin.view import json_answer
from quorum.config.admin_port import AdminRole

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Handling = TypeVar("Handling", bound=Callable[..., Awaitable[object]])

#: takes what the body of the request that this task answers says
SAID: Final = ContextVar[dict[str, object]]("said")
#: data, as JSON has it
Base64: TypeAlias = Annotated[str | None, {"type": ["string", "null"], "contentEncoding": "base64"}]
#: an object that is answered, as its annotation describes it
Answer: TypeAlias = Mapping[str, object]
StatFields: TypeAlias = Annotated[Mapping[str, int], {"$ref": "#/components/schemas/Stat"}]
_NAMES: Final[Mapping[object, str]] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    dict: "object",
    NoneType: "null",
}


def encoded(data: bytes | None) -> str | None:
    """Return data as Base64 has it."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def schema_of(kind: Any) -> Schema:
    """Return the schema of an answer's type: its own if it is annotated with one."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema: Schema = arguments[1]
        return schema
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin in (Union, UnionType):
        return {"type": [_NAMES[each] for each in arguments]}
    name = _NAMES.get(origin or kind)
    return {} if name is None else {"type": name}


def answer(optional: tuple[str, ...] = (), **kinds: Any) -> Schema:
    """Return the schema of an object that has all of these fields but for the optional ones, perhaps more."""
    properties = {name: schema_of(kind) for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "required": sorted(properties.keys() - set(optional))}


def blank(kind: Any) -> dict[str, object]:
    """Return an answer of a kind with null in every field."""
    properties = schema_of(kind)["properties"]
    assert isinstance(properties, dict)
    return dict.fromkeys(properties)


def page_of(row: Any) -> Schema:
    """Return the schema of a page: its items, and what to send as `after` for the next one, or null."""
    items = {"type": "array", "items": schema_of(row)}
    return answer(items=Annotated[object, items], next_after=str | int | None)


class AdminEndpoint(NamedTuple):
    """One row of the table of endpoints.

    Attributes:
        method: of HTTP; GET answers HEAD, too.
        path: with {names} of places in it.
        handler: what answers.
        summary: what it is for, in a sentence.
        parameters: of the query.
        places: of the path.
        body: fields of the JSON body it takes; None: it takes none.
        optional_body: whether no body is one, too.
        answer: schema of a good answer.
        content: content types of that answer.
        status: of a good answer besides 200.
        role: that its caller needs, where there are tokens; unless said, a reader to read, else an operator.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    parameters: tuple[Field, ...]
    places: tuple[Field, ...]
    body: tuple[Field, ...] | None
    optional_body: bool
    answer: Schema
    content: tuple[str, ...]
    status: tuple[int, ...]
    role: AdminRole


def _note(fields: Mapping[str, object]) -> None:
    if (said := SAID.get(None)) is not None:
        said.update(fields)


class Endpoints(list[AdminEndpoint]):
    """A table that handlers enter themselves in, in the order of their declaration."""

    def add(
        self,
        method: str,
        path: str,
        *,
        content: tuple[str, ...] = ("application/json",),
        status: tuple[int, ...] = (),
        role: AdminRole | None = None,
        example: str = "",
        optional_body: bool = False,
        bytes_max: int = 0,
        any_query: bool = False,
    ) -> Callable[[Handling], Handling]:
        """Return a decorator that enters a handler; its first argument is the request.

        The handler's `query` and `body` are read for it, as its annotations declare them; any other argument
        is a place of the path. It returns a response, or the object that a good answer has.
        The first line of its docstring is the summary.

        Args:
            method, path, content, status, role: as AdminEndpoint has them.
            optional_body: whether no body is one, too; without an argument for it, the body has no fields.
            example: how to send a body, for errors.
            bytes_max: of a body; 0: what the application takes.
            any_query: whether a query that nothing reads is let pass.
        """

        def enter(function: Handling) -> Handling:
            hints = get_type_hints(function, include_extras=True)
            result_kind = hints.pop("return")
            query, body = hints.pop("query", None), hints.pop("body", None)
            names = list(inspect.signature(function).parameters)[1:]
            places = {name: Field.of(name, hints[name]) for name in names if name in hints}
            parameters = fields_of(query) if query else ()
            taken = fields_of(body) if body else () if optional_body else None
            needed = role or (AdminRole.READER if method == "GET" else AdminRole.OPERATOR)
            good = status[0] if method == "POST" and status else 200

            async def handler(request: web.Request) -> web.StreamResponse:
                given: dict[str, object] = {}
                if not any_query:
                    found = read_query(request, parameters, example)
                    if query:
                        given["query"] = query(**found)
                for name, place in places.items():
                    given[name] = place.read(place.of_text(request.match_info[name]))
                if taken is not None:
                    fields = await read_body(
                        request, taken, example, optional=optional_body, bytes_max=bytes_max
                    )
                    _note(fields)
                    if body:
                        given["body"] = body(**fields)
                result = await function(request, **given)
                if isinstance(result, web.StreamResponse):
                    return result
                assert isinstance(result, Mapping)
                return json_answer(result, status=good)

            summary = (function.__doc__ or "").partition("\n")[0].rstrip(".")
            streams = isinstance(result_kind, type) and issubclass(result_kind, web.StreamResponse)
            self.append(
                AdminEndpoint(
                    *(method, path, handler, summary, parameters, tuple(places.values()), taken),
                    *(optional_body, {} if streams else schema_of(result_kind), content, status, needed),
                )
            )
            return function

        return enter
