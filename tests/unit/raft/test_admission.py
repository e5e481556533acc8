"""Who may speak for a member: by its recorded disk, by retired ones, and by what an old log can know."""

from __future__ import annotations

import pytest

from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import PeerIdentity, RefusalReason

CLUSTER = "c" * 32
OLD, NEW, THREE = "2" * 32, "f" * 32, "3" * 32
TWO = PeerIdentity("local", CLUSTER, 2, OLD)
TWO_NEW = TWO._replace(incarnation=NEW)
EMPTY = TWO_NEW._replace(cluster_id="")
NOT_YET = PeerIdentity("local", "", 3, THREE)


def configuration(two: str, *retired: str) -> Configuration:
    """Nodes 1 and 2 vote and 3 learns; 2 learns, too, as long as no disk of it is named."""
    members = {1: Member("h:1", "1" * 32), 2: Member("h:2", two), 3: Member("h:3", "")}
    voters = {node_id: member for node_id, member in members.items() if member.incarnation}
    learners = {node_id: member for node_id, member in members.items() if not member.incarnation}
    return Configuration(CLUSTER, voters, learners, retired)


BEFORE = configuration(OLD)
REPLACED = configuration("", OLD)


@pytest.mark.parametrize(
    ("admission", "other", "reason"),
    [
        (Admission(), TWO_NEW, None),
        (Admission(BEFORE, BEFORE, 1), TWO, None),
        (Admission(BEFORE, BEFORE, 1), NOT_YET, None),
        (Admission(BEFORE, BEFORE, 1), TWO_NEW, RefusalReason.ANOTHER_DISK),
        (Admission(BEFORE, BEFORE, 1), EMPTY, RefusalReason.ANOTHER_DISK),
        # No leader is heard: this log may be behind one that knows the new disk.
        (Admission(BEFORE, BEFORE, 0), TWO_NEW, None),
        (Admission(BEFORE, BEFORE, 0), EMPTY, None),
        # The leader itself is heard, from a disk that this log does not know yet.
        (Admission(BEFORE, BEFORE, 2), TWO_NEW, None),
        (Admission(REPLACED, REPLACED, 1), EMPTY, None),
        (Admission(REPLACED, REPLACED, 1), TWO, RefusalReason.RETIRED),
        (Admission(REPLACED, REPLACED, 0), TWO, RefusalReason.RETIRED),
        # A retirement that is not committed may never come to be.
        (Admission(REPLACED, BEFORE, 0), TWO, None),
        (Admission(REPLACED, BEFORE, 1), TWO, RefusalReason.RETIRED),
    ],
)
def test_who_is_refused(admission: Admission, other: PeerIdentity, reason: RefusalReason | None) -> None:
    refusal = admission.refusal(other)
    assert (refusal and refusal.reason) == reason
    if refusal is not None:
        retired = reason is RefusalReason.RETIRED
        # Who is told to replace a disk that was replaced would retire the one in its place.
        assert ("quorate members replace 2" in refusal.remedy) is not retired
        assert "empty its data directory and start it with --join" in refusal.remedy or not retired
        assert refusal.found == other.incarnation


def test_a_retired_disk_is_told_whose_place_it_has_lost() -> None:
    again = configuration(TWO_NEW.incarnation, OLD)
    refusal = Admission(again, again, 1).refusal(TWO)
    assert refusal is not None
    assert f"stop the process: the disk {TWO_NEW.incarnation} is that of node 2 now" in refusal.remedy
    gone = again._replace(voters={1: again.voters[1]})
    refusal = Admission(gone, gone, 1).refusal(TWO)
    assert refusal is not None
    assert "it is not a member any more" in refusal.remedy


@pytest.mark.parametrize(
    ("admission", "other", "present", "refused"),
    [
        (Admission(BEFORE, BEFORE, 1), TWO, TWO, False),
        (Admission(BEFORE, BEFORE, 1), TWO_NEW, TWO, True),
        (Admission(BEFORE, BEFORE, 1), TWO, TWO_NEW, False),
        (Admission(REPLACED, REPLACED, 1), TWO_NEW, EMPTY._replace(incarnation="e" * 32), False),
        (Admission(BEFORE, BEFORE, 1), NOT_YET, NOT_YET._replace(incarnation="e" * 32), False),
        # Nobody leads: whoever comes may be the one that this log does not know yet.
        (Admission(BEFORE, BEFORE, 0), TWO_NEW, TWO, False),
        (Admission(), TWO_NEW, TWO, False),
        # The present one leads, whatever the log says of its disk so far.
        (Admission(BEFORE, BEFORE, 2), TWO, TWO_NEW, True),
    ],
)
def test_who_may_take_a_place(
    admission: Admission, other: PeerIdentity, present: PeerIdentity, refused: bool
) -> None:
    refusal = admission.refusal(other, present)
    assert (refusal is not None) == refused
