"""Whether this broker has the peer secret of its cluster, found out before it registers.

A broker with another secret would be a stranger to all others. The first broker leaves a check value in the
quorum, by which a secret is recognized and from which neither it nor any key follows (quorum.metadata.trust).
A broker whose secrets do not match refuses to start. Where a secret file holds several
(controller.wire.scram says how one is rotated), any may match, and the first one becomes the check value.
"""

from __future__ import annotations

import json
from typing import Final

from quorum.client import BadVersionError, Client, NodeExistsError, NoNodeError
from quorum.errors import Fault, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataDecodeError
from quorum.metadata.reading import read_node, registered_brokers
from quorum.metadata.records import BrokerRecord
from quorum.metadata.trust import Trust

ROUNDS_MAX: Final = 8


class WrongPeerSecretError(QuorateError):
    """The broker's peer secret is not that of the cluster; it did not register."""

    fault = Fault.OPERATOR

    def __init__(self) -> None:
        super().__init__(
            "security.peer_secret_file: its secret is not that of the cluster",
            "copy the file of a broker that runs; if the secret of the whole cluster was replaced, add the "
            "former one on a second line, or, where znodes are not protected, stop every broker and delete "
            f"{paths.PEER_CHECK_VALUE}",
        )


class ForeignBrokersError(QuorateError):
    """The quorum serves Apache Kafka's brokers; a Quorate broker would depose their controller."""

    fault = Fault.OPERATOR

    def __init__(self, broker_id: int) -> None:
        super().__init__(
            f"quorum.hosts: broker {broker_id} of Apache Kafka is registered there",
            "give Quorate's brokers a quorum of their own",
        )


async def check_peer_secret(client: Client, trust: Trust) -> None:
    """Compare this broker's secrets with the cluster's check value, or leave one where there is none.

    Args:
        client: of the quorum.
        trust: of the secrets in the file, in its order.
    """
    values = trust.check_values
    value = json.dumps({"version": 1, "check": values[0]}, separators=(",", ":")).encode()
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, paths.PEER_CHECK_VALUE)
        try:
            if node is None:
                for broker_id, (_, record) in (await registered_brokers(client)).items():
                    if isinstance(record, BrokerRecord) and record.incarnation is None:
                        raise ForeignBrokersError(broker_id)
                await client.create(paths.PEER_CHECK_VALUE, value)
                return
            found = _decode(node.data)
            if found not in values:
                raise WrongPeerSecretError
            if found != values[0]:
                await client.set(paths.PEER_CHECK_VALUE, value, node.stat.version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue
        return
    raise ContendedError("the check value of the peer secret", ROUNDS_MAX)


def _decode(data: bytes | None) -> str:
    try:
        return str(json.loads(data or b"")["check"])
    except (ValueError, TypeError, KeyError):
        raise MetadataDecodeError(
            paths.PEER_CHECK_VALUE, "check", "something else", "a check value"
        ) from None
