"""What must be read again before the next decision."""

from __future__ import annotations

import pytest

from controller.core import dirty as dirty_module
from controller.core.dirty import Concern, Dirty
from quorum.metadata.paths import PartitionKey, partition_state_path

KEY = PartitionKey("t", 3)
STATE = partition_state_path(KEY)


def clean() -> Dirty:
    dirty = Dirty()
    assert dirty.take().everything
    return dirty


@pytest.mark.parametrize(
    ("path", "concern"),
    [
        ("/brokers/topics", Concern.NOTHING),
        ("/brokers/topics/t", Concern.TOPIC),
        ("/brokers/topics/t/partitions", Concern.NOTHING),
        ("/brokers/topics/t/partitions/3", Concern.NOTHING),
        (STATE, Concern.STATE),
        ("/brokers/topics/t/partitions/03/state", Concern.NOTHING),
        ("/brokers/topics/t/partitions/x/state", Concern.NOTHING),
        ("/brokers/topics/t/other/3/state", Concern.NOTHING),
        ("/brokers/ids/1", Concern.NOTHING),
    ],
)
def test_a_path_says_what_it_is_about(path: str, concern: Concern) -> None:
    dirty = clean()
    assert dirty.note(path) is concern
    assert bool(dirty) == (concern is not Concern.NOTHING)


def test_many_events_about_a_state_are_one_read() -> None:
    dirty = clean()
    for _ in range(3):
        dirty.note(STATE)
    assert dirty.take() == (False, [], [KEY])
    assert not dirty


def test_the_event_of_an_own_write_is_no_news() -> None:
    dirty = clean()
    dirty.note(STATE)
    dirty.account_for([KEY])
    assert not dirty


def test_the_write_of_another_beside_an_own_one_is_news() -> None:
    dirty = clean()
    dirty.note(STATE)
    dirty.note(STATE)
    dirty.account_for([KEY])
    assert dirty.take().states == [KEY]


def test_too_many_states_mean_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_module, "DIRTY_STATES_MAX", 2)
    dirty = clean()
    for partition in range(3):
        dirty.note(partition_state_path(PartitionKey("t", partition)))
    assert dirty.take() == (True, [], [])
