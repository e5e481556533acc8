"""Each fence that is switched off shows in a transcript: so its story depends on it.

The simulation finds the harm that a missing fence does; here stands which story to read about one.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from broker.core import fences as broker_fences
from controller.core import fences as controller_fences
from controller.core.effects import Check
from quorum.metadata import paths
from tests.scenarios.subjects import FOLDER, scene_of
from tests.scenarios.transcript import play


def _known_isr(isr: tuple[int, ...], _joining: object) -> tuple[int, ...]:
    """Let a follower that joins count only when that is written."""
    return isr


ANY_EPOCH = Check(paths.CONTROLLER_EPOCH, -1)
#: (fence, what it always answers or what takes its place, the story about it)
CONTROLLER: list[tuple[str, object, str]] = [
    ("controller_epoch", ANY_EPOCH, "controller/fenced_controller"),
    ("is_of_successor", False, "controller/state_of_a_successor"),
    ("partition_version", -1, "controller/isr_change_in_a_pass"),
    ("bounced_unseen", False, "controller/unseen_bounce"),
    ("is_other_topic", False, "controller/created_again_unnoticed"),
    ("is_former_life", False, "controller/controlled_shutdown"),
    ("is_other_disk", False, "controller/emptied_disk"),
    ("is_of_this_life", True, "controller_channels/bounce"),
    ("ends_life", False, "controller_channels/stale_generation"),
    ("ends_term", False, "controller/deposed_by_a_broker"),
]
BROKER: list[tuple[str, object, str]] = [
    ("is_stale_controller", False, "replica/stale_decisions"),
    ("is_stale_generation", False, "replica/stale_decisions"),
    ("is_decided_in", True, "replica/lost_session"),
    ("is_stale_decision", False, "replica/stale_decisions"),
    ("is_repeated_decision", False, "replica/stale_decisions"),
    ("is_stale_stop", False, "replica/stop_and_create_again"),
    ("is_of_another_topic", False, "replica/stop_and_create_again"),
    ("is_fenced_reader", False, "replica/new_leader_knows_less"),
    ("is_ahead_reader", False, "replica/two_leaders"),
    ("is_position_of_epoch", True, "replica/new_leader_knows_less"),
    ("has_diverged", False, "replica/truncation_by_epoch"),
    ("gating_isr", _known_isr, "replica/follower_joins"),
    ("is_of_former_life", False, "replica/bounced_follower"),
    ("may_join", True, "replica/bounced_follower"),
    ("is_own_epoch", True, "replica/decided_again"),
    ("is_current_answer", True, "replica/late_answer"),
]


def _differs(story: str) -> bool:
    path = FOLDER / f"{story}.txt"
    text = path.read_text()
    try:
        return play(text, scene_of(path)) != text
    except Exception:  # noqa: BLE001 - a machine that notices by itself differs, too
        return True


def _switch_off(monkeypatch: pytest.MonkeyPatch, fences: ModuleType, name: str, answer: object) -> None:
    def always(*_arguments: Any) -> object:
        return answer

    monkeypatch.setattr(fences, name, answer if callable(answer) else always)


@pytest.mark.parametrize(("name", "answer", "story"), CONTROLLER, ids=[row[0] for row in CONTROLLER])
def test_story_of_the_controller_needs_its_fence(
    name: str, answer: object, story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _switch_off(monkeypatch, controller_fences, name, answer)
    assert _differs(story)


@pytest.mark.parametrize(("name", "answer", "story"), BROKER, ids=[row[0] for row in BROKER])
def test_story_of_a_replica_needs_its_fence(
    name: str, answer: object, story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _switch_off(monkeypatch, broker_fences, name, answer)
    assert _differs(story)
