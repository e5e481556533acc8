"""Whether this broker has the peer secret of its cluster, found out before it registers.

A broker with another secret would be a stranger to all others. The first broker leaves a check value in the
quorum, by which a secret is recognized and from which neither it nor any key follows (quorum.metadata.trust).
A broker whose secrets do not match refuses to start, and one that runs takes no file that does not match.
Where a file holds several secrets (quorum.config.peer_secrets says how one is replaced), any may match;
`quorate secret rotate` moves the check value to the next one when nothing hangs on the former any more.
"""

from __future__ import annotations

from typing import Final

from quorum.client import Client, NodeExistsError
from quorum.errors import Fault, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.reading import read_node, registered_brokers
from quorum.metadata.records import BrokerRecord
from quorum.metadata.rotation import check_value, encode_check_value
from quorum.metadata.trust import Trust

ROUNDS_MAX: Final = 8


class WrongPeerSecretError(QuorateError):
    """The broker's peer secret is not that of the cluster; it did not register."""

    fault = Fault.OPERATOR

    def __init__(self) -> None:
        super().__init__(
            "security.peer_secret_file: its secret is not that of the cluster",
            "copy the file of a broker that runs; while a secret is replaced the former one stays on a "
            "second line until `quorate secret rotate` says that it may go",
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
    value = encode_check_value(trust)
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, paths.PEER_CHECK_VALUE)
        try:
            if node is None:
                for broker_id, (_, record) in (await registered_brokers(client)).items():
                    if isinstance(record, BrokerRecord) and record.incarnation is None:
                        raise ForeignBrokersError(broker_id)
                await client.create(paths.PEER_CHECK_VALUE, value)
                return
            if check_value(node.data) not in values:
                raise WrongPeerSecretError
        except NodeExistsError:
            continue
        return
    raise ContendedError("the check value of the peer secret", ROUNDS_MAX)
