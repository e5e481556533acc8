"""The actions of the quorum itself: hand leadership over, take a snapshot. No state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorum.admin.members import NodeId
from quorum.console.extension import Action, Call


class Transfer(NamedTuple):
    """Hand leadership to a voter."""

    node_id: NodeId


async def _preview_transfer(call: Call, body: Transfer) -> Mapping[str, object]:
    now = await call.upstream.fields("/v1/leader", authorization=call.authorization)
    return {"text": f"Node {body.node_id} is to lead instead of node {now['leader_id']}, in a new term."}


async def _transfer(call: Call, body: Transfer) -> Mapping[str, object]:
    fields = {"node_id": body.node_id}
    done = await call.upstream.fields(
        "/v1/leader", method="POST", fields=fields, authorization=call.authorization
    )
    return {"text": f"node {done['leader_id']} leads, in term {done['term']}"}


ACTIONS: Final = (Action("transfer-leadership", Transfer, _preview_transfer, _transfer),)
