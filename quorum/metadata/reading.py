"""Reading the records of the control plane through a client: one znode, and the registered brokers."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from quorum.client import Client, NoNodeError, Stat
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.records import BrokerRecord


class NodeView(NamedTuple):
    """A znode as it was read."""

    data: bytes | None
    stat: Stat


async def read_node(client: Client, path: str) -> NodeView | None:
    """Read a znode; None when it does not exist."""
    try:
        data, stat = await client.get(path)
    except NoNodeError:
        return None
    return NodeView(data, stat)


async def registered_brokers(client: Client) -> dict[int, tuple[BrokerGeneration, BrokerRecord | str]]:
    """Read all registrations, strangers' as well: {broker id: (generation, record)}, by rising id.

    In place of a malformed record is what is wrong with it.
    """
    try:
        names = await client.get_children(paths.BROKER_IDS)
    except NoNodeError:
        return {}
    ids = sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 10)
    nodes = await asyncio.gather(*(read_node(client, paths.broker_id_path(broker_id)) for broker_id in ids))
    return {
        broker_id: (BrokerGeneration(node.stat.czxid), _record_or_problem(broker_id, node.data))
        for broker_id, node in zip(ids, nodes, strict=True)
        if node is not None
    }


def _record_or_problem(broker_id: int, data: bytes | None) -> BrokerRecord | str:
    try:
        return BrokerRecord.decode(broker_id, data)
    except MetadataDecodeError as error:
        return error.message
