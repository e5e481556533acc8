"""The endpoint that has this node take a snapshot of its own state.

The answer is 202: GET /v1/snapshots has the snapshot once it is durable, or says why there is none. The node
that is asked takes it, whoever leads. No state.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from quorum.admin.fields import read_fields
from quorum.admin.view import VIEW, json_answer

_EXAMPLE: Final = "send no body, or {}"


async def post_snapshot(request: web.Request) -> web.Response:
    """Have a snapshot taken."""
    await read_fields(request, set(), _EXAMPLE, optional=True)
    return json_answer(await request.app[VIEW].take_snapshot(), status=202)
