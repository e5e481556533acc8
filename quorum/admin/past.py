"""Reads of the tree as it was behind an earlier transaction: one znode, or all of them by pages.

Decides what a well-formed request is, and how far back a node can answer: as far as it retains every change
since. What the history says of the past is quorum.changelog.past's. The history holds all data, so access
lists do not count here. No state.

Source: docs/pipeline.md, "Change log"; RFC 9110, "410 Gone".
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from quorum.admin.changelog import HISTORY, gone
from quorum.admin.endpoint import BASE64, INTEGER, STRING, encoded, fields, list_of, nullable
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.state import STATE
from quorum.admin.view import error_answer, json_answer, part
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.past import Past, PastPage, Visitor

NODES_MAX: Final = 10_000
#: for the history to be written as far as the node has applied it
WAIT_MS: Final = 5000
AS_OF: Final = Parameter("as_of_zxid", int, "the transaction behind which the tree was so")
TREE_PARAMETERS: Final = (
    AS_OF,
    Parameter(
        "after", str, "znodes behind this path; next_after of the page before", "", pattern="|/|(?:/[^/]+)+"
    ),
    Parameter("limit", int, "znodes of a page", 1000, 1, NODES_MAX),
)
TREE: Final = fields(
    as_of_zxid=INTEGER,
    items=list_of(fields(path=STRING, data=BASE64, version=INTEGER, ephemeral_owner=INTEGER)),
    next_after=nullable("string"),
)


async def get_tree(request: web.Request) -> web.Response:
    """Answer with a page of the tree as it was."""
    query = read_query(request, TREE_PARAMETERS)
    as_of_zxid, after = int(query["as_of_zxid"]), str(query["after"])
    page = PastPage(part(request, STATE).live_page(after, int(query["limit"])), after)
    problem = await undo(request, as_of_zxid, page.visit)
    if problem is not None:
        return problem
    nodes, next_after = page.nodes()
    items = [{**node._asdict(), "data": encoded(node.data)} for node in nodes]
    return json_answer({"as_of_zxid": as_of_zxid, "items": items, "next_after": next_after})


async def past_node(
    request: web.Request, path: str, as_of_zxid: int, *, with_names: bool
) -> Past | web.Response | None:
    """Return a znode as it was, None where there was none, or the problem to answer with."""
    node = part(request, STATE).past_node(path, with_names=with_names)
    problem = await undo(request, as_of_zxid, node.visit)
    return node.found() if problem is None else problem


async def undo(request: web.Request, as_of_zxid: int, visit: Visitor) -> web.Response | None:
    """Pass over the changes from a transaction to what is applied now; returns the problem, if there is one.

    The caller took what stands there now in the same turn of the loop.
    """
    history, zxid = part(request, HISTORY), part(request, STATE).zxid
    if as_of_zxid > zxid:
        problem = f"as_of_zxid = {as_of_zxid}: this node has applied zxid {zxid}"
        return error_answer(404, problem, "ask again, or another node", retriable=True)
    if as_of_zxid < history.first_zxid - 1:
        return gone(as_of_zxid, history.first_zxid, AS_OF.name)
    await history.wait_for(zxid, WAIT_MS)
    try:
        last_zxid = await history.visit_changes(as_of_zxid + 1, zxid, visit)
    except DamagedChangelogError as error:
        return gone(as_of_zxid, max(error.next_zxid, history.first_zxid), AS_OF.name)
    # What is retained rises, also during the read.
    if as_of_zxid < history.first_zxid - 1:
        return gone(as_of_zxid, history.first_zxid, AS_OF.name)
    if last_zxid < zxid:
        problem = f"this node's history ends at zxid {last_zxid}, its state at {zxid}"
        return error_answer(503, problem, "ask again, or another node", retriable=True)
    return None
