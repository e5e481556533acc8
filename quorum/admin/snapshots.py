"""The endpoint that has this node take a snapshot of its own state.

Decides what a well-formed request is; when it is answered, and by which snapshot, is
quorum.node.snapshotting's. The node that is asked takes it, whoever leads. No state.

Source: architecture, "HTTP on the admin port"; raft, "Snapshots".
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from quorum.admin.fields import read_fields
from quorum.admin.view import VIEW, json_answer

_EXAMPLE: Final = "send no body, or {}"


async def post_snapshot(request: web.Request) -> web.Response:
    """Take a snapshot, and answer once it is durable."""
    await read_fields(request, set(), _EXAMPLE, optional=True)
    return json_answer(await request.app[VIEW].take_snapshot())
