"""Who is the odd one: the leader's judgement over reports that come in any order, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from quorum.errors import NodeStoppedError
from quorum.node.digests.history import DigestHistory, Digests
from quorum.node.digests.judge import ANSWER_WAIT_MS, DigestJudge, Question, Ruling, StopVerdict

LEADER = 1


def good(log_index: int, flavour: bytes = b"good") -> Digests:
    """Digests of one history; another flavour is a history that differs from it at every index."""
    name = flavour + b"%d" % log_index
    return Digests(log_index, name.ljust(16, b"s"), name.ljust(16, b"a"))


def bad(log_index: int) -> Digests:
    return good(log_index, b"bad")


class Court:
    """A leader that applied entries 0 to `applied`, and a clock."""

    def __init__(self, voters: Iterable[int] = (1, 2, 3), *, applied: int = 100) -> None:
        self.voters = list(voters)
        self.now_ms = 5000.0
        self.history = DigestHistory(good(0), entries_max=64)
        self.apply(applied)
        self.judge = DigestJudge(LEADER, self.history)

    def apply(self, last: int) -> None:
        for log_index in range(self.history.newest_index + 1, last + 1):
            self.history.note(*good(log_index))

    def report(self, sender: int, theirs: Digests) -> list[Ruling]:
        return self.judge.report(sender, theirs, self.voters, self.now_ms)

    def tick(self, later_ms: float = 10.0) -> list[Ruling]:
        self.now_ms += later_ms
        return self.judge.tick(self.voters, self.now_ms)


def convicted(node_id: int, log_index: int, supporters: tuple[int, ...], voters: int = 3) -> StopVerdict:
    return StopVerdict(node_id, bad(log_index), good(log_index), supporters, voters)


def test_agreement_is_silent() -> None:
    court = Court()
    for log_index in (90, 95, 100):
        assert court.report(2, good(log_index)) == []
        assert court.report(3, good(log_index)) == []
        assert court.tick() == []
    assert court.judge.compared_count == 6


def test_a_follower_that_differs_is_convicted_once_the_others_are_known_to_agree_so_far() -> None:
    court = Court()
    assert court.report(3, good(90)) == []
    assert court.report(2, bad(95)) == [Question(3, 95)]
    assert court.tick() == []
    assert court.report(3, good(95)) == [convicted(2, 95, (1, 3))]
    assert court.tick(ANSWER_WAIT_MS) == []


def test_agreement_at_a_later_index_proves_agreement_before() -> None:
    court = Court()
    court.report(3, good(98))
    assert court.report(2, bad(95)) == [convicted(2, 95, (1, 3))]


def test_either_chain_counts() -> None:
    for different in (good(95)._replace(state_digest=b"x" * 16), good(95)._replace(apply_digest=b"x" * 16)):
        court = Court()
        court.report(3, good(95))
        assert court.report(2, different) == [StopVerdict(2, different, good(95), (1, 3), 3)]


def test_a_leader_alone_against_followers_that_agree_convicts_itself() -> None:
    court = Court()
    assert court.report(2, bad(95)) == [Question(3, 95)]
    assert court.report(3, bad(97)) == [], "at another index they cannot be compared with each other"
    assert court.report(3, bad(95)) == [StopVerdict(LEADER, good(95), bad(95), (2, 3), 3)]


def test_three_states_are_no_majority_and_all_followers_stop() -> None:
    court = Court()
    court.report(2, bad(95))
    third = good(95, b"third")
    assert court.report(3, third) == [
        convicted(2, 95, (1,)),
        StopVerdict(3, third, good(95), (1,), 3),
    ]


def test_of_two_voters_the_follower_stops_at_once() -> None:
    court = Court(voters=(1, 2))
    assert court.report(2, bad(95)) == [convicted(2, 95, (1,), voters=2)]


def test_a_voter_that_does_not_answer_is_waited_for_and_then_the_follower_stops() -> None:
    court = Court()
    assert court.report(2, bad(95)) == [Question(3, 95)]
    assert court.tick(ANSWER_WAIT_MS - 1) == []
    assert court.report(2, bad(99)) == [], "the wait does not begin again"
    assert court.tick(1) == [convicted(2, 95, (1,))]


@pytest.mark.parametrize(
    ("differing", "expected"),
    [
        ({2}, [convicted(2, 95, (1, 3, 4, 5), voters=5)]),
        ({2, 3}, [convicted(2, 95, (1, 4, 5), voters=5), convicted(3, 95, (1, 4, 5), voters=5)]),
        ({2, 3, 4}, [StopVerdict(LEADER, good(95), bad(95), (2, 3, 4), 5)]),
        ({2, 3, 4, 5}, [StopVerdict(LEADER, good(95), bad(95), (2, 3, 4), 5)]),
    ],
)
def test_five_voters(differing: set[int], expected: list[Ruling]) -> None:
    court = Court(voters=range(1, 6))
    ruled = [
        ruling
        for node_id in (2, 3, 4, 5)
        for ruling in court.report(node_id, bad(95) if node_id in differing else good(95))
        if isinstance(ruling, StopVerdict)
    ]
    ruled += [ruling for ruling in court.tick() if isinstance(ruling, StopVerdict)]
    nodes = [verdict.node_id for verdict in ruled]
    assert nodes == [verdict.node_id for verdict in expected if isinstance(verdict, StopVerdict)]
    for verdict in ruled:
        assert len(verdict.supporters) >= 3, "nobody is convicted before a majority is known"


def test_two_against_two_is_no_majority_and_the_followers_stop() -> None:
    court = Court(voters=range(1, 5))
    court.report(2, bad(95))
    court.report(3, bad(95))
    assert court.report(4, good(95)) == [
        convicted(2, 95, (1, 4), voters=4),
        convicted(3, 95, (1, 4), voters=4),
    ]


def test_a_learner_is_convicted_and_never_counts() -> None:
    court = Court(voters=(1, 2, 3))
    court.report(4, good(95))
    assert court.report(5, bad(95)) == [Question(2, 95), Question(3, 95)]
    assert court.report(2, good(95)) == [convicted(5, 95, (1, 2))]
    court = Court(voters=(1, 2, 3))
    court.report(2, bad(95))
    assert court.report(4, bad(95)) == [], "a voter and a learner are no majority of three voters"
    assert court.report(3, good(95))[0] == convicted(2, 95, (1, 3))


def test_a_leader_that_leaves_the_voters_does_not_count_itself() -> None:
    court = Court(voters=(2, 3))
    assert court.report(2, bad(95)) == [Question(3, 95)]
    assert court.report(3, good(95)) == [convicted(2, 95, (3,), voters=2)]


def test_a_report_ahead_of_the_leader_waits_for_it() -> None:
    court = Court()
    court.report(3, good(100))
    assert court.report(2, bad(105)) == []
    assert court.report(2, bad(103)) == [], "the first one counts"
    court.apply(104)
    assert court.tick() == []
    court.apply(105)
    assert court.tick() == [Question(3, 105)]
    assert court.report(3, good(105)) == [convicted(2, 105, (1, 3))]


def test_a_report_that_the_leader_has_forgotten_proves_nothing() -> None:
    court = Court()
    assert court.report(2, bad(100 - 64)) == []
    assert court.judge.compared_count == 0
    assert court.tick(ANSWER_WAIT_MS) == []


def test_a_node_that_was_started_again_and_agrees_is_not_convicted() -> None:
    court = Court()
    assert court.report(2, bad(95)) == [Question(3, 95)]
    assert court.report(2, good(99)) == []
    assert court.tick(ANSWER_WAIT_MS) == []
    court.report(3, good(100))
    assert court.report(2, bad(100)) == [convicted(2, 100, (1, 3))], "a later difference is a new case"


def test_what_a_node_agreed_with_before_it_was_started_again_proves_nothing() -> None:
    court = Court(voters=range(1, 6))
    court.report(3, good(96))
    assert court.report(2, bad(95)) == [Question(4, 95), Question(5, 95)]
    assert court.report(3, bad(97)) == [Question(3, 95)]
    assert court.report(4, good(95)) == [], "nodes 1 and 4 are no majority of five"
    assert court.report(3, bad(95)) == []
    assert court.report(5, bad(95)) == [StopVerdict(LEADER, good(95), bad(95), (2, 3, 5), 5)]


def test_a_convicted_node_that_goes_on_is_convicted_again() -> None:
    court = Court()
    court.report(3, good(100))
    assert court.report(2, bad(95)) == [convicted(2, 95, (1, 3))]
    assert court.report(2, bad(96)) == [convicted(2, 96, (1, 3))]


def test_the_story_names_index_digests_sides_and_remedy() -> None:
    error = convicted(2, 95, (1, 3)).error()
    assert isinstance(error, NodeStoppedError)
    for part in ("log index 95", "that of nodes 1, 3", "2 of 3 voters", bad(95).state_digest.hex()):
        assert part in error.message
    for digest in (good(95).state_digest, good(95).apply_digest, bad(95).apply_digest):
        assert digest.hex() in error.message
    assert "no majority" not in error.message
    assert "members replace 2" in error.remedy
    assert "data directory" in error.remedy
    assert "no majority says who is right" in convicted(2, 95, (1,), voters=2).error().message
