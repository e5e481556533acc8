"""Configurations of nodes that run in the test's own process: loopback, free ports, a secret of their own."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from quorum.config.node import NodeConfig, node_config

HOST: Final = "127.0.0.1"
LISTENERS: Final = ("client", "peer", "admin")
#: sections for a log that is cut into small segments, so that little data makes much history
SMALL_SEGMENTS: Final[Mapping[str, Mapping[str, object]]] = {
    "limits": {"frame_bytes_max": 65536},
    "raft": {"batch_bytes_max": 65536, "segment_bytes_max": 65536, "log_cache_bytes_max": 65536},
}


def loopback_configs(
    folder: Path, count: int = 1, sections: Mapping[str, Mapping[str, object]] | None = None
) -> list[NodeConfig]:
    """Make the configurations of a new cluster.

    Args:
        folder: gets the peer secret; the data of node i go to "node-i" in it.
        count: of nodes, with ids from 1.
        sections: further sections for all of them.
    """
    secret = folder / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    ports = free_ports(count * len(LISTENERS))
    listen = {
        node_id: {name: f"{HOST}:{ports.pop()}" for name in LISTENERS} for node_id in range(1, count + 1)
    }
    members = {str(node_id): addresses["peer"] for node_id, addresses in listen.items()}
    return [
        node_config(
            {
                "node": {"id": node_id, "cluster": "in-process", "data_dir": f"node-{node_id}"},
                "listen": addresses,
                "members": members,
                "security": {"peer_secret_file": str(secret)},
                **(sections or {}),
            },
            folder,
        )
        for node_id, addresses in listen.items()
    ]


def free_ports(count: int) -> list[int]:
    """Find ports that nobody uses now; all are held while they are drawn, so that they differ."""
    with contextlib.ExitStack() as held:
        probes: Sequence[socket.socket] = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
