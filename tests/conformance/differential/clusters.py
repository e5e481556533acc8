"""The two systems that are compared: three real ZooKeeper servers and three Quorate nodes on loopback."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.differential.access import SUPER_DIGEST
from tests.conformance.differential.link import Side
from tests.support.nodes import QuorateNodes
from tests.support.zookeeper import ZooKeeper

TICK_MS: Final = 1000
SESSION_TIMEOUT_MIN_MS: Final = 2000
SESSION_TIMEOUT_MAX_MS: Final = 600_000
#: containers and TTL nodes vanish by themselves only after a run
CHECK_INTERVAL_MS: Final = 3_600_000
PATIENCE_MS: Final = 60_000
_MEMORY_DISK: Final = Path("/dev/shm")

_SETTINGS: Final[dict[str, dict[str, object]]] = {
    # a machine that is busy with something else is no difference
    "raft": {
        "election_timeout_ms": [1500, 3000],
        "heartbeat_interval_ms": 100,
        "forward_deadline_ms": PATIENCE_MS,
    },
    "limits": {
        "handshake_timeout_ms": PATIENCE_MS,
        "tick_ms": TICK_MS,
        "session_timeout_min_ms": SESSION_TIMEOUT_MIN_MS,
        "session_timeout_max_ms": SESSION_TIMEOUT_MAX_MS,
        "container_check_interval_ms": CHECK_INTERVAL_MS,
    },
    "security": {"super_digest": SUPER_DIGEST, "four_letter_words": ["*"]},
}


@contextlib.contextmanager
def zookeeper() -> Iterator[Side]:
    """Three ZooKeeper servers, without fsync: none of them is killed."""
    servers = ZooKeeper(
        3,
        tick_ms=TICK_MS,
        config={
            "minSessionTimeout": SESSION_TIMEOUT_MIN_MS,
            "maxSessionTimeout": SESSION_TIMEOUT_MAX_MS,
            "snapCount": 1_000_000,
        },
        properties={
            "zookeeper.DigestAuthenticationProvider.superDigest": SUPER_DIGEST,
            "znode.container.checkIntervalMs": str(CHECK_INTERVAL_MS),
        },
        jvm_options=("-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        fsync=False,
    )
    with servers:
        leader = servers.leader()
        order = [leader, *(number for number in range(3) if number != leader)]
        ports = [servers.client_ports[number] for number in order]
        yield Side("ZooKeeper", ports, lambda node: servers.kill_server(order[node]))


@contextlib.contextmanager
def quorate(arguments: Sequence[str] = ("-m", "quorum", "serve")) -> Iterator[Side]:
    """Three Quorate nodes, on a disk in memory where there is one: none of them is killed.

    Args:
        arguments: what follows the Python interpreter, before `--config`.
    """
    memory = _MEMORY_DISK if _MEMORY_DISK.is_dir() else None
    with (
        tempfile.TemporaryDirectory(prefix="quorate-", dir=memory) as folder,
        QuorateNodes(settings=_SETTINGS, arguments=arguments, folder=Path(folder)) as nodes,
    ):
        leader = nodes.leader()
        ids = [leader, *(node_id for node_id in nodes.node_ids if node_id != leader)]
        ports = [nodes.nodes[node_id].client_port for node_id in ids]
        yield Side("Quorate", ports, lambda node: nodes.kill(ids[node]))
