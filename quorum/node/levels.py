"""The feature level of the cluster as one node sees it: what it supports, and when a leader raises the level.

A leader proposes the highest level that every member supports, itself and learners included, as soon as that
is above the cluster's. What a member supports it says in its hello; of one that is not connected nothing is
known, so nothing rises while one is away. A node whose build does not support the cluster's level refuses its
data directory, is refused by its peers, and stops where it comes to the entry.

Soft state only; the level itself is the state machine's. Source: docs/operate/upgrade.md; etcd, "cluster
version".
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

import msgpack

from quorum.core.machine import StateMachine
from quorum.errors import DataDirError, Fault, NotLeaderError, ProposalRefusedError, QuorateError
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import EntryKind
from quorum.raft.engine.member_links import MemberLinks
from quorum.raft.requests.payloads import LEVEL_FORMAT

log = logging.getLogger("quorate.levels")

_REMEDY: Final = (
    "start the build that ran here before, or a newer one: the level of a cluster never falls; the data "
    "directory stays as it is"
)


class FeatureLevelError(QuorateError):
    """The cluster's feature level is above what this build supports."""

    fault = Fault.OPERATOR


def check_data_dir(data_dir: str, feature_level: int, supported_level: int) -> None:
    """Refuse a data directory of a cluster whose level this build does not support."""
    if feature_level > supported_level:
        problem = (
            f"data directory {data_dir} belongs to a cluster of feature level {feature_level}, and this "
            f"build supports up to {supported_level}"
        )
        raise DataDirError(problem, _REMEDY)


class LevelHost(Protocol):
    """What is asked of the node around it."""

    node_id: int
    links: MemberLinks

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration in the log, committed or not."""

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to the leader's log; returns its index."""


class Levels:
    """What this node and the others support, and the proposal to raise the cluster's level."""

    def __init__(self, host: LevelHost, supported_level: int) -> None:
        self._host = host
        #: the highest that this build supports
        self.supported_level: Final = supported_level
        #: log index of the last proposal of this node; nothing is proposed before that is applied
        self._proposed_index = 0

    def of_member(self, node_id: int) -> int | None:
        """Return the highest level that a member supports; None: it is not connected."""
        if node_id == self._host.node_id:
            return self.supported_level
        node = self._host.links.connected.get(node_id)
        return None if node is None else node.feature_level

    def check(self, machine: StateMachine) -> None:
        """Stop a node that does not support the level that it has just applied."""
        if machine.feature_level > self.supported_level:
            raise FeatureLevelError(
                f"the cluster's feature level is {machine.feature_level} as of log index "
                f"{machine.applied_index}, and this build supports up to {self.supported_level}",
                _REMEDY,
            )

    def maybe_raise(self, machine: StateMachine) -> None:
        """Propose a higher level if every member supports it; called now and then on a leader."""
        configuration = self._host.configuration
        if self.supported_level <= machine.feature_level or configuration is None:
            return
        members = *configuration.voters, *configuration.learners
        wanted = min(self.supported_level, *(self.of_member(each) or 0 for each in members))
        if wanted <= machine.feature_level or machine.applied_index < self._proposed_index:
            return
        log.info("every member supports feature level %d: raising it from %d", wanted, machine.feature_level)
        payload = msgpack.packb([LEVEL_FORMAT, [["level", wanted]]])
        try:
            self._proposed_index = self._host.propose(EntryKind.CONTROL, payload)
        except (NotLeaderError, ProposalRefusedError) as error:
            log.info("left the feature level to the next leader: %s", error)
