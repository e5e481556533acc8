"""ZooKeeper's quotas: which nodes set them, what their text says, and which quota a node counts in. Pure.

The node `/zookeeper/quota/a/zookeeper_limits` is the quota of `/a`; what the subtree of `/a` uses is written
into `zookeeper_stats` beside it (usage.py). A node counts in its nearest quota alone, itself or above it.
Nothing below `/zookeeper` is counted, and neither it nor the root has a quota: there are ordinary nodes.
No state.

Source: ZooKeeper 3.9 Quotas, StatsTrack, PathTrie, ZooKeeperServer.checkQuota.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

ROOT: Final = "/zookeeper/quota"
BELOW_ROOT: Final = "/zookeeper/quota/"
LIMITS: Final = "zookeeper_limits"
STATS: Final = "zookeeper_stats"
#: a longer text sets no limit: ZooKeeper's is a tenth of it
TEXT_BYTES_MAX: Final = 1024

_UNLIMITED: Final = -1
_SEPARATOR: Final = re.compile("[,;]+")
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")
#: {name in the text: position in Limits}
_NAMES: Final = {"count": 0, "bytes": 1, "countHardLimit": 2, "byteHardLimit": 3}


class QuotaRule(IntEnum):
    """What an entry of the log does about quotas; an entry says it, so that all nodes do the same."""

    #: an entry from before quotas were kept: their nodes are ordinary ones
    IGNORED = 0
    #: usage is written
    KEPT = 1
    #: and what exceeds a hard limit is refused
    ENFORCED = 2


class Limits(NamedTuple):
    """What a quota allows; −1: anything."""

    nodes: int = _UNLIMITED
    data_bytes: int = _UNLIMITED
    nodes_hard: int = _UNLIMITED
    data_bytes_hard: int = _UNLIMITED


class Quota(NamedTuple):
    """A quota and what is used of it: the nodes that count in it, and the bytes of their data."""

    nodes: int
    data_bytes: int
    limits: Limits

    def text(self) -> bytes:
        """Return what the stats node says."""
        return b"count=%d,bytes=%d" % (self.nodes, self.data_bytes)

    def plus(self, nodes: int, data_bytes: int) -> Quota:
        """Return it with so much more in use."""
        return Quota(self.nodes + nodes, self.data_bytes + data_bytes, self.limits)

    def refuses(self, nodes: int, data_bytes: int) -> bool:
        """Tell whether a hard limit is in the way of so many nodes and bytes more.

        As in ZooKeeper a limit judges only what changes: data that shrinks and is still too long is refused,
        a node without data is not.
        """
        limits = self.limits
        if nodes and _UNLIMITED < limits.nodes_hard < self.nodes + nodes:
            return True
        return bool(data_bytes) and _UNLIMITED < limits.data_bytes_hard < self.data_bytes + data_bytes

    def is_above_soft_limit(self) -> bool:
        """Tell whether more is used than a soft limit wants."""
        limits = self.limits
        return _UNLIMITED < limits.nodes < self.nodes or _UNLIMITED < limits.data_bytes < self.data_bytes


def read_limits(text: bytes) -> Limits:
    """Read the text of a limits node; what is no number sets no limit.

    Args:
        text: `count=5,bytes=100`, since ZooKeeper 3.7 `count=-1,bytes=-1=;byteHardLimit=9;countHardLimit=3`.
    """
    if len(text) > TEXT_BYTES_MAX:
        return Limits()
    found = [_UNLIMITED] * 4
    for pair in _SEPARATOR.split(text.decode("utf-8", "replace")):
        name, _, rest = pair.partition("=")
        number = rest.partition("=")[0]
        if name in _NAMES and _NUMBER.fullmatch(number):
            found[_NAMES[name]] = int(number)
    return Limits(*found)


def counted_path(path: str) -> tuple[str, str]:
    """Return (path that a quota node is about, its name: LIMITS or STATS); ("", "") of any other node.

    Args:
        path: of a node below ROOT.
    """
    subject, _, name = path[len(ROOT) :].rpartition("/")
    if name not in (LIMITS, STATS) or not subject or (subject + "/").startswith("/zookeeper/"):
        return "", ""
    return subject, name


def nearest(quotas: Mapping[str, Quota], path: str) -> str | None:
    """Return the path of the quota that a node counts in: its own, or the nearest above it."""
    while path:
        if path in quotas:
            return path
        path = path.rpartition("/")[0]
    return None
