"""What every request that changes something is read by: a JSON object, and no field that nobody knows.

Decides what is refused before any endpoint looks at a field; what the fields mean is the endpoints'. No
state.

Source: docs/http.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from quorum.admin.view import BadInputError
from quorum.errors import shown


async def read_fields(
    request: web.Request,
    known: set[str],
    example: str,
    *,
    optional: bool = False,
    with_query: bool = False,
    bytes_max: int = 0,
) -> Mapping[str, object]:
    """Read the body as a JSON object without unknown fields; beside it the query says nothing.

    Args:
        request: with its body unread.
        known: fields that the endpoint knows.
        example: the remedy, as "send {...}".
        optional: whether no body at all counts as an object without fields.
        with_query: whether the endpoint reads the query itself.
        bytes_max: of the body; 0: what the application takes.
    """
    if not with_query:
        refuse_unknown("query", set(request.query), set(), example)
    body = await (request.clone(client_max_size=bytes_max) if bytes_max else request).read()
    if optional and not body:
        return {}
    try:
        fields: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"the body is not JSON: {shown(str(error))}", example) from error
    if not isinstance(fields, dict):
        raise BadInputError(f"the body is {shown(fields)}, not a JSON object", example)
    refuse_unknown("body", set(fields), known, example)
    return fields


def refuse_unknown(where: str, given: set[str], known: set[str], example: str) -> None:
    """Refuse fields that the endpoint does not know."""
    unknown = sorted(given - known)
    if unknown:
        raise BadInputError(f"the {where} has the unknown field {shown(unknown[0])}", example, unknown[0])
