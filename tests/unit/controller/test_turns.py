"""What walks all partitions gives way to others between its parts."""

from __future__ import annotations

import pytest

from controller.core import deciding
from controller.core.effects import GiveWay
from controller.core.inputs import ElectLeaders, Reassign, Request
from controller.core.io import AT_ONCE_MAX
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from tests.support.stepped_controller import SteppedController, of_kind

TOPICS, PARTITIONS = 4, 500
KEYS = [PartitionKey(f"t-{topic}", partition) for topic in range(TOPICS) for partition in range(PARTITIONS)]


@pytest.fixture
def term() -> SteppedController:
    """A term with many partitions, of which broker 2 leads each."""
    stepped = SteppedController()
    for each in (1, 2):
        stepped.register(each)
    for topic in range(TOPICS):
        stepped.create(f"t-{topic}", dict.fromkeys(range(PARTITIONS), (2, 1)))
    stepped.elect()
    return stepped


@pytest.mark.parametrize(
    "request_",
    [
        ElectLeaders(None, unclean=False),
        ElectLeaders(KEYS, unclean=True),
        Reassign(dict.fromkeys(KEYS, (1, 2))),
    ],
    ids=["elect", "elect in vain", "reassign"],
)
def test_a_request_about_all_partitions_lets_others_have_their_turns(
    term: SteppedController, request_: Request
) -> None:
    before = len(term.effects)
    outcome = term.ask(request_)
    assert isinstance(outcome, dict)
    assert len(of_kind(term.effects[before:], GiveWay)) >= len(KEYS) / AT_ONCE_MAX


def test_no_turn_handles_more_than_a_part_of_a_failure(term: SteppedController) -> None:
    term.tree.remove(paths.broker_id_path(2))
    # Deciding, writing, taking over.
    rests = len(of_kind(term.settle(), GiveWay))
    assert rests >= len(KEYS) / deciding.DECIDED_AT_ONCE_MAX + len(KEYS) / AT_ONCE_MAX
    assert {term.state(key).leader for key in KEYS} == {1}


def test_what_is_decided_in_parts_is_decided_as_a_whole(
    term: SteppedController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "DECIDED_AT_ONCE_MAX", 7)
    term.tree.remove(paths.broker_id_path(2))
    term.settle()
    assert [(term.state(key).leader, term.state(key).isr) for key in KEYS] == [(1, (1,))] * len(KEYS)
