"""Entry 1: what a cluster is given once and keeps for ever.

Decides the payload of the founding entry around the configuration that the core chose: the cluster id and
the key from which session passwords are derived. Both are drawn by the first leader and are hard state from
its commit on. Randomness comes in as an argument. Knows nothing of elections.

Source: docs/internals/consensus.md, "Membership".
"""

from __future__ import annotations

import json
import random
from typing import NamedTuple

from quorum.raft.core.configuration import Configuration, parse_configuration

CLUSTER_ID_BITS = 128
SESSION_KEY_BITS = 256


class Founding(NamedTuple):
    """What entry 1 says."""

    configuration: Configuration
    #: key of the session passwords, 32 bytes
    session_key: bytes


def new_cluster_id(rng: random.Random) -> str:
    """Draw a cluster id: 32 hex digits."""
    return f"{rng.getrandbits(CLUSTER_ID_BITS):032x}"


def founding_payload(configuration: Configuration, rng: random.Random, cluster_id: str = "") -> bytes:
    """Return the payload of entry 1: the configuration with a new cluster id, and a new session key.

    Args:
        configuration: the founders, with the incarnations of the first leader and its voters.
        rng: the node's source of randomness (the operating system's outside of simulations).
        cluster_id: of a restored state; empty: a new one is drawn.
    """
    plain = configuration._replace(cluster_id=cluster_id or new_cluster_id(rng)).to_plain()
    plain["session_key"] = f"{rng.getrandbits(SESSION_KEY_BITS):064x}"
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def parse_founding(payload: bytes) -> Founding:
    """Parse the payload of entry 1."""
    configuration = parse_configuration(payload)
    return Founding(configuration, bytes.fromhex(json.loads(payload)["session_key"]))
