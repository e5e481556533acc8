"""What goes wrong between this node and others: written to the log now and then, and kept for the status.

Decides how often a line is repeated and how long a refusal is remembered. A refused node dials again
within a second, so what was not repeated for a while is over. Knows no sockets. Soft state only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorum.platform.runtime import Runtime
from quorum.raft.peers.hello import HelloRefusedError, PeerIdentity, RefusalReason
from quorum.raft.peers.peers import QuietLog

log = logging.getLogger("quorate.transport")

#: A refusal that was not repeated for so long is over.
KEPT_MS: Final = 10_000
#: Node ids of which refusals are remembered.
_NODES_MAX: Final = 256
#: What the disk, or the build, of a node is refused for.
_OF_THE_DISK: Final = (RefusalReason.RETIRED, RefusalReason.ANOTHER_DISK, RefusalReason.FEATURE_LEVEL)


class DiskRefusal(NamedTuple):
    """This node refuses another one's disk."""

    incarnation: str
    reason: str  #: one sentence, with the remedy


class PeerRefusal(NamedTuple):
    """Another node refuses this one."""

    node_id: int  #: the one that refuses
    reason: str  #: one sentence with both values
    remedy: str


@dataclass(slots=True)
class PeerRefusals:
    """The last refusals of one node, in both directions."""

    runtime: Runtime
    #: for which the same is logged once, in milliseconds
    log_interval_ms: float
    #: {node id: (monotonic ms, why it refuses this node)}
    _by_peers: dict[int, tuple[float, PeerRefusal]] = field(default_factory=dict)
    #: {node id: (monotonic ms, the disk that this node refuses)}
    _disks: dict[int, tuple[float, DiskRefusal]] = field(default_factory=dict)
    quiet: QuietLog = field(init=False)

    def __post_init__(self) -> None:
        self.quiet = QuietLog(self.log_interval_ms)

    def note(self, node_id: int, proven: PeerIdentity | None, error: HelloRefusedError) -> None:
        """Remember that a hello was refused.

        Args:
            node_id: the member that was dialled, 0 if it called.
            proven: the identity that it proved, if it came to that.
            error: by whom and why.
        """
        now_ms = self.runtime.monotonic_ms()
        other = node_id or (0 if proven is None else proven.node_id)
        if error.by_peer and other:
            refusal = PeerRefusal(other, error.message, error.remedy)
            self._by_peers.pop(other, None)
            self._by_peers[other] = (now_ms, refusal)
            _bound(self._by_peers)
        elif proven is not None and error.refusal.reason in _OF_THE_DISK:
            self._disks.pop(proven.node_id, None)
            self._disks[proven.node_id] = (now_ms, DiskRefusal(proven.incarnation, str(error)))
            _bound(self._disks)

    def forget(self, node_id: int) -> None:
        """Forget that this node refused us, or we a disk of it: both accepted each other now.

        A process with another disk of it that still runs says hello again, and is refused again.
        """
        self._by_peers.pop(node_id, None)
        self._disks.pop(node_id, None)

    def by_peers(self) -> tuple[PeerRefusal, ...]:
        """Return the nodes that refuse this one, ascending ids."""
        since_ms = self.runtime.monotonic_ms() - KEPT_MS
        return tuple(
            refusal for _, (noted_ms, refusal) in sorted(self._by_peers.items()) if noted_ms >= since_ms
        )

    def refused_disks(self) -> dict[int, DiskRefusal]:
        """Return {node id: its disk} of the processes that this node lets speak for nobody."""
        since_ms = self.runtime.monotonic_ms() - KEPT_MS
        return {key: disk for key, (noted_ms, disk) in sorted(self._disks.items()) if noted_ms >= since_ms}

    def warn(self, place: str, kind: str, text: str) -> None:
        """Write a line, unless the same kind was said of the same place a moment ago."""
        if self.quiet.admits((place, kind), self.runtime.monotonic_ms()):
            log.warning("%s", text)


def _bound(facts: dict[int, tuple[float, PeerRefusal]] | dict[int, tuple[float, DiskRefusal]]) -> None:
    if len(facts) > _NODES_MAX:
        del facts[next(iter(facts))]
