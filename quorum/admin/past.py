"""Reads of the tree as it was after an earlier transaction: one znode, or all of them by pages.

Decides what a well-formed request is, and how far back a node can answer: as far as it retains every change
since. What the history says of the past is quorum.changelog.past's. The history holds all data, so access
lists do not count here. No state.

Source: docs/clients/spark.md, "Change log"; RFC 9110, "410 Gone".
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.changelog import HISTORY, gone
from quorum.admin.endpoint import Answer, Base64, Endpoints, answer, encoded
from quorum.admin.reading import Says
from quorum.admin.state import MACHINE
from quorum.admin.view import error_answer
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.past import Past, PastNode, PastPage, Visitor, live_page
from quorum.changelog.rows import UNRECORDED

NODES_MAX: Final = 10_000
#: for the history to be written as far as the node has applied it
WAIT_MS: Final = 5000
_AS_OF: Final = "as_of_zxid"
ENDPOINTS: Final = Endpoints()


class TreeQuery(NamedTuple):
    """Which page of which tree is wanted."""

    as_of_zxid: Annotated[int, Says("the transaction after which the tree was so")]
    after: Annotated[
        str, Says("znodes after this path; next_after of the page before", pattern="|/|(?:/[^/]+)+")
    ] = ""
    limit: Annotated[int, Says("znodes of a page", 1, NODES_MAX)] = 1000


TreeRow: TypeAlias = Annotated[Answer, answer(path=str, data=Base64, version=int, ephemeral_owner=int)]
TreePage: TypeAlias = Annotated[
    Answer | web.Response, answer(as_of_zxid=int, items=list[TreeRow], next_after=str | None)
]


@ENDPOINTS.add("GET", "/v1/changelog/tree")
async def _get_tree(request: web.Request, query: TreeQuery) -> TreePage:
    """All znodes as they were after a transaction."""
    as_of_zxid, after, limit = query
    past_page = PastPage(live_page(request.app[MACHINE]().tree, after, limit), after)
    problem = await undo(request, as_of_zxid, past_page.visit)
    if problem is not None:
        return problem
    nodes, next_after = past_page.nodes()
    items = [
        {
            "path": each.path,
            "data": encoded(each.data),
            "version": each.version,
            "ephemeral_owner": each.ephemeral_owner,
        }
        for each in nodes
    ]
    return {"as_of_zxid": as_of_zxid, "items": items, "next_after": next_after}


async def past_node(
    request: web.Request, path: str, as_of_zxid: int, *, with_names: bool
) -> Past | web.Response | None:
    """Return a znode as it was, None where there was none, or the problem to answer with."""
    if path.startswith(UNRECORDED):
        return error_answer(
            404, f"{path}: no change below it is recorded", "read it as it is now", retriable=False
        )
    node = PastNode(request.app[MACHINE]().tree, path, with_names=with_names)
    problem = await undo(request, as_of_zxid, node.visit)
    return node.found() if problem is None else problem


async def undo(request: web.Request, as_of_zxid: int, visit: Visitor) -> web.Response | None:
    """Pass over the changes from a transaction to what is applied now; returns the problem, if there is one.

    The caller took what is there now in the same turn of the loop.
    """
    history, zxid = request.app[HISTORY], request.app[MACHINE]().zxid
    if as_of_zxid > zxid:
        problem = f"as_of_zxid = {as_of_zxid}: this node has applied zxid {zxid}"
        return error_answer(404, problem, "ask again, or another node", retriable=True)
    if as_of_zxid < history.first_zxid - 1:
        return gone(as_of_zxid, history.first_zxid, _AS_OF)
    await history.wait_for(zxid, WAIT_MS)
    try:
        last_zxid = await history.visit_changes(as_of_zxid + 1, zxid, visit)
    except DamagedChangelogError as error:
        return gone(as_of_zxid, max(error.next_zxid, history.first_zxid), _AS_OF)
    # What is retained rises, also during the read.
    if as_of_zxid < history.first_zxid - 1:
        return gone(as_of_zxid, history.first_zxid, _AS_OF)
    if last_zxid < zxid:
        problem = f"this node's history ends at zxid {last_zxid}, its state at {zxid}"
        return error_answer(503, problem, "ask again, or another node", retriable=True)
    return None
