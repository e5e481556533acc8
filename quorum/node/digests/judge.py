"""Which node is the odd one, when the state of one differs from the leader's. Pure; the leader's, for a term.

What it builds on: digests are chains, so nodes that agree at one log index agreed at all before it, and nodes
that differ never agree again. Followers report the newest entry that they applied. A report that differs
opens a case at its index, and every voter that is not known to agree with the leader up to there is asked for
its digests at exactly that index. Then

- the leader's side is a majority of the voters: whoever differs is convicted;
- nodes that differ from the leader and agree with each other are a majority: the leader is convicted;
- neither, and all have answered or the time is up: whoever differs from the leader is convicted.

A learner never counts, and is convicted like others. Times come in as arguments; soft state only: a new
leader begins anew.

Source: raft, "Snapshots" (Digests).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from quorum.errors import NodeStoppedError
from quorum.node.digests.history import DigestHistory, Digests
from quorum.raft.core.configuration import quorum_size

#: How long a case waits for voters that do not answer before it is closed without a majority.
ANSWER_WAIT_MS: Final = 2000.0


class Question(NamedTuple):
    """A node is to be asked for its digests at a log index."""

    node_id: int
    log_index: int


class StopVerdict(NamedTuple):
    """A node must stop: its state differs.

    Attributes:
        node_id: the odd one; may be the leader itself.
        own: its digests.
        other: those of the nodes that it differs from, at the same index.
        supporters: the nodes with `other` that are known, ascending.
        voters: how many voters the cluster has.
    """

    node_id: int
    own: Digests
    other: Digests
    supporters: tuple[int, ...]
    voters: int

    def error(self) -> NodeStoppedError:
        """Return the story for the node that must stop."""
        nodes = ("node " if len(self.supporters) == 1 else "nodes ") + ", ".join(map(str, self.supporters))
        side = f"{len(self.supporters)} of {self.voters} voters"
        if len(self.supporters) < quorum_size(self.voters):
            side += "; no majority says who is right, so the follower stops"
        return NodeStoppedError(
            f"at log index {self.own.log_index} the state of this node differs from that of {nodes} "
            f"({side}): state_digest {self.own.state_digest.hex()} here, {self.other.state_digest.hex()} "
            f"there; apply_digest {self.own.apply_digest.hex()} here, {self.other.apply_digest.hex()} there",
            "keep a copy of its data directory for a report; a start replays snapshot and log, which helps "
            f"where its memory was at fault; if it stops again, run `quorate members replace {self.node_id}` "
            "and start it with --join on an empty data directory",
        )


Ruling = Question | StopVerdict


class _Case:
    """A difference whose odd one is not known yet."""

    def __init__(self, ours: Digests, until_ms: float) -> None:
        self.ours = ours
        self.until_ms = until_ms
        #: {node: its digests at ours.log_index}, all unlike ours
        self.votes: dict[int, Digests] = {}


class DigestJudge:
    """The leader's half of the comparison."""

    def __init__(self, node_id: int, history: DigestHistory) -> None:
        """Begin a term.

        Args:
            node_id: the leader.
            history: its digests, which go on being noted.
        """
        self._node_id = node_id
        self._history = history
        #: {node: highest log index at which it agreed with the leader}
        self._agreed: dict[int, int] = {}
        #: {node: its first report of an entry that the leader has not applied yet}
        self._early: dict[int, Digests] = {}
        self._case: _Case | None = None
        self.compared_count = 0

    def report(self, sender: int, theirs: Digests, voters: Iterable[int], now_ms: float) -> list[Ruling]:
        """Take a node's digests.

        Args:
            sender: the node.
            theirs: at any log index; what the leader has forgotten proves nothing.
            voters: of the configuration as it is.
            now_ms: monotonic.

        Returns:
            What is to be done, in order.
        """
        ours = self._history.at(theirs.log_index)
        if ours is None:
            if theirs.log_index > self._history.newest_index:
                self._early.setdefault(sender, theirs)
            return []
        self.compared_count += 1
        case = self._case
        if theirs == ours:
            self._agreed[sender] = max(theirs.log_index, self._agreed.get(sender, 0))
            if case is not None and theirs.log_index >= case.ours.log_index:
                # It was started again meanwhile, and its state is a good one now.
                case.votes.pop(sender, None)
            return self._rule(set(voters), now_ms)
        # What it agreed with was an earlier life of it, and proves nothing of this one.
        agreed_before = self._agreed.pop(sender, None) is not None
        rulings: list[Ruling] = []
        if case is None:
            case = self._case = _Case(ours, now_ms + ANSWER_WAIT_MS)
            rulings += [
                Question(node_id, ours.log_index)
                for node_id in sorted(set(voters) - {self._node_id, sender})
                if self._agreed.get(node_id, -1) < ours.log_index
            ]
        if theirs.log_index == case.ours.log_index:
            case.votes[sender] = theirs
        elif agreed_before:
            rulings.append(Question(sender, case.ours.log_index))
        return rulings + self._rule(set(voters), now_ms)

    def tick(self, voters: Iterable[int], now_ms: float) -> list[Ruling]:
        """Judge what came too early, and close a case whose time is up."""
        if not self._early and self._case is None:
            return []
        rulings: list[Ruling] = []
        due = [node for node, theirs in self._early.items() if theirs.log_index <= self._history.newest_index]
        for node_id in due:
            rulings += self.report(node_id, self._early.pop(node_id), voters, now_ms)
        return rulings + self._rule(set(voters), now_ms)

    def _rule(self, voters: set[int], now_ms: float) -> list[Ruling]:
        """Decide the open case if it can be decided."""
        case = self._case
        if case is None:
            return []
        if not case.votes:
            self._case = None
            return []
        index = case.ours.log_index
        agreeing = {node for node, agreed in self._agreed.items() if agreed >= index} - case.votes.keys()
        side = sorted(({self._node_id} | agreeing) & voters)
        quorum = quorum_size(len(voters))
        if len(side) < quorum:
            for digests in case.votes.values():
                group = tuple(
                    sorted(node for node, vote in case.votes.items() if vote == digests and node in voters)
                )
                if len(group) >= quorum:
                    self._case = None
                    return [StopVerdict(self._node_id, case.ours, digests, group, len(voters))]
            answered = voters <= {self._node_id, *agreeing, *case.votes}
            if not answered and now_ms < case.until_ms:
                return []
        self._case = None
        return [
            StopVerdict(node_id, theirs, case.ours, tuple(side) or (self._node_id,), len(voters))
            for node_id, theirs in sorted(case.votes.items())
        ]
