"""The configuration and the bounds of the simulated nodes: the shipped ones, but for sizes.

Election timeouts, heartbeats and deadlines are the shipped defaults. Sizes are small, so that segments roll,
snapshots are taken, sent in pieces and compacted, and batches fill up within a simulated minute.
"""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path

from quorum.config.node import NodeConfig, node_config
from quorum.node.member import Sizes

CLUSTER = "simulated"
FRAME_BYTES_MAX = 16 * 1024
TICK_MS = 500


@functools.cache
def _secret_file() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """Make the one file that a checked configuration needs; it goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="quorate-simulation-")
    secret = Path(folder.name) / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text(32 * "s")
    return folder, secret


def peer_address(node_id: int) -> str:
    """Return what a member's address looks like; the simulated network goes by ids."""
    return f"10.0.0.{node_id}:2281"


def build_config(node_id: int, members: Iterable[int], rng: random.Random) -> NodeConfig:
    """Return a node's configuration, its sizes drawn.

    Args:
        node_id: whose.
        members: the founders, or those that a joining node is told of.
        rng: draws sizes, for each node its own.
    """
    sizes = {
        "segment_bytes_max": rng.choice([16, 16, 32, 64]) * 1024,
        "log_cache_bytes_max": rng.choice([16, 64, 1024]) * 1024,
        "snapshot_overlay_bytes_max": rng.choice([4, 16, 4096]) * 1024,
        "batch_bytes_max": FRAME_BYTES_MAX,
    }
    sections: dict[str, dict[str, object]] = {
        "node": {"id": node_id, "cluster": CLUSTER, "data_dir": "/data"},
        "members": {str(member): peer_address(member) for member in members},
        "security": {"peer_secret_file": str(_secret_file()[1])},
        "raft": dict(sizes),
        "limits": {"frame_bytes_max": FRAME_BYTES_MAX, "tick_ms": TICK_MS},
    }
    return node_config(sections, Path("/"))


def draw_sizes(rng: random.Random) -> Sizes:
    """Return the bounds that are no configuration, drawn."""
    return Sizes(
        committed_bytes_max=rng.choice([2, 16, 512]) * 1024,
        append_bytes_max=rng.choice([2, 16, 1024]) * 1024,
        snapshot_chunk_bytes_max=rng.choice([1, 4, 16, 256]) * 1024,
        snapshot_log_bytes=rng.choice([16, 32, 96]) * 1024,
        snapshot_records_per_step=rng.choice([1, 4, 32]),
    )
