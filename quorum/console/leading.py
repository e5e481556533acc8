"""The actions of the quorum itself: hand leadership over, take a snapshot. No state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorum.admin.members import NodeId
from quorum.console.extension import PageAction, PageCall


class TransferLeadership(NamedTuple):
    """Hand leadership to a voter."""

    node_id: NodeId


async def _preview_transfer(call: PageCall, body: TransferLeadership) -> Mapping[str, object]:
    now = await call.upstream.fields("/v1/leader", authorization=call.authorization)
    return {"text": f"Node {body.node_id} is to lead instead of node {now['leader_id']}, in a new term."}


async def _transfer(call: PageCall, body: TransferLeadership) -> Mapping[str, object]:
    fields = {"node_id": body.node_id}
    done = await call.upstream.fields(
        "/v1/leader", method="POST", fields=fields, authorization=call.authorization
    )
    return {"text": f"node {done['leader_id']} leads, in term {done['term']}"}


class Snapshot(NamedTuple):
    """Take a snapshot of the node that is asked."""


async def _preview_snapshot(call: PageCall, _body: Snapshot) -> Mapping[str, object]:
    return {"text": f"The node at {call.upstream.url} is to take a snapshot, in the background."}


async def _snapshot(call: PageCall, _body: Snapshot) -> Mapping[str, object]:
    done = await call.upstream.fields(
        "/v1/snapshots", method="POST", fields={}, authorization=call.authorization
    )
    return {"text": f"a snapshot is taken, up to log index {done['log_index']}"}


ACTIONS: Final = (
    PageAction("take-snapshot", Snapshot, _preview_snapshot, _snapshot),
    PageAction("transfer-leadership", TransferLeadership, _preview_transfer, _transfer),
)
