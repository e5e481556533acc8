"""Whether this broker has the peer secret of its cluster, found out before it registers.

A broker with another secret could register, and even be elected, but nobody could reach its broker listener.
The first broker leaves a check value in the quorum: the StoredKey of SCRAM-SHA-256, by which a secret is
recognized and from which it cannot be computed. A broker whose secrets do not match refuses to start. Where a
secret file holds several (controller.messages.scram says how one is rotated), any may match, and the first
one becomes the check value.
Source: RFC 5802, section 3 (StoredKey); control-plane design, "Broker".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from controller.messages.scram import secret_check_value
from quorum.client import BadVersionError, Client, NodeExistsError, NoNodeError
from quorum.errors import Fault, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataDecodeError
from quorum.metadata.store import read_node

ROUNDS_MAX: Final = 8


class WrongPeerSecretError(QuorateError):
    """The broker's peer secret is not that of the cluster; it did not register."""

    fault = Fault.OPERATOR

    def __init__(self) -> None:
        super().__init__(
            "security.peer_secret_file: its secret is not that of the cluster",
            "copy the file of a broker that runs; if the secret of the whole cluster was replaced, "
            f"stop every broker and delete {paths.PEER_CHECK_VALUE}",
        )


async def check_peer_secret(client: Client, secrets: Sequence[str], cluster_id: str) -> None:
    """Compare this broker's secrets with the cluster's check value, or leave one where there is none.

    Args:
        client: of the quorum.
        secrets: as in the file, in its order; at least one.
        cluster_id: of /cluster/id.

    Raises:
        WrongPeerSecretError: none of them is the cluster's.
        MetadataDecodeError: the check value is malformed.
        ContendedError: others changed it in each of ROUNDS_MAX rounds.
        ClientError: the quorum cannot be asked.
    """
    values = [secret_check_value(secret, cluster_id) for secret in secrets]
    value = json.dumps({"version": 1, "stored_key": values[0]}, separators=(",", ":")).encode()
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, paths.PEER_CHECK_VALUE)
        try:
            if node is None:
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
        return str(json.loads(data or b"")["stored_key"])
    except (ValueError, TypeError, KeyError):
        raise MetadataDecodeError(
            paths.PEER_CHECK_VALUE, "stored_key", "something else", "a check value"
        ) from None
