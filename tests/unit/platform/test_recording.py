"""Recordings of state machines."""

from __future__ import annotations

import uuid
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple, cast

import msgpack
import pytest

from broker.core.replica_inputs import LogView, Truncated
from broker.core.replica_moves import IllegalMoveError
from broker.replication.recording import RecordedReplicaMachine
from controller.core.inputs import Answered, Elected, PathsChanged, Tick
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import LogEnd, PartitionStateRecord, TopicRecord
from quorum.platform.recording import RecordingError, Recordings, Step, pack, read_recording, unpack

VALUES = [
    None,
    -1,
    "orders",
    b"\0",
    (1, (2,), [3]),
    frozenset({2, 1}),
    uuid.UUID(int=7),
    Elected(1, ControllerEpoch(2), 3, 2**63 - 1),
    Answered(1, BrokerGeneration(7), 0, {PartitionKey("orders", 1): 6}),
    PartitionStateRecord(ControllerEpoch(1), 2, 3, (2,), 0, {4: LogEnd(1, 5)}),  # type: ignore[arg-type]
    TopicRecord(uuid.UUID(int=1), {0: (1, 2)}),
]


@pytest.mark.parametrize("value", VALUES, ids=[type(each).__name__ for each in VALUES])
def test_values_come_back_with_their_types(value: object) -> None:
    again = unpack(pack(value))
    assert again == value
    assert type(again) is type(value)


def test_a_mapping_comes_back_as_a_dict() -> None:
    assert unpack(pack(MappingProxyType({1: 2}))) == {1: 2}


def test_what_is_no_value_is_refused() -> None:
    with pytest.raises(TypeError, match="object is no value"):
        pack(object())


@pytest.mark.parametrize(
    "named",
    [["os", "system", "true"], ["quorum.platform.recording", "Recorder", "x"], ["quorum.nowhere", "X"]],
    ids=["foreign", "no value", "unknown"],
)
def test_a_file_names_classes_of_values_only(named: list[str]) -> None:
    with pytest.raises(ValueError, match="is no class of values"):
        unpack(msgpack.packb(msgpack.ExtType(1, pack(named))))


def test_a_recording_is_read_up_to_a_step_that_was_cut(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "deep")
    recorder = recordings.begin("controller-1")
    steps = [Step(1, PathsChanged(["/brokers"]), None), Step(2, Tick(), [Tick()])]
    for step in steps:
        recorder.note(*step)
    recordings.close()
    path = tmp_path / "deep" / "controller-1.steps"
    assert list(read_recording(path)) == steps
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read_recording(path)) == steps[:1]


def test_recordings_share_their_room_and_a_full_one_takes_no_more(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path, bytes_max=100)
    one, two = recordings.begin("one"), recordings.begin("two")
    for number in range(9):
        one.note(number, "x" * 20)
        two.note(number, "y")
    recordings.close()
    read = [list(read_recording(tmp_path / f"{name}.steps")) for name in ("one", "two")]
    assert all(0 < len(each) < 9 for each in read)
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 100


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match="record_dir"):
        Recordings(tmp_path / "file" / "deep")


def test_a_disk_that_refuses_ends_the_recordings_and_no_machine(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "gone")
    one = recordings.begin("one")
    recordings.begin("n" * 300).note(1, 1)
    one.note(1, 1)
    recordings.close()
    assert list(read_recording(tmp_path / "gone" / "one.steps")) == []


def test_a_step_that_raises_is_on_file(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path)
    machine = RecordedReplicaMachine(recordings, PartitionKey("orders", 0), 1, 1)
    log = SimpleNamespace(topic_id=None, log_start_offset=0, log_end_offset=0, latest_epoch=-1)
    with pytest.raises(IllegalMoveError):
        machine.step(Truncated(), cast("LogView", log), 7)
    recordings.close()
    *_, last = read_recording(tmp_path / "replica-orders-0.steps")
    assert last == Step(7, ("step", Truncated(), (None, 0, 0, -1, {})), None)


def test_thousands_of_machines_take_no_open_files(tmp_path: Path) -> None:
    before = len(list(Path("/dev/fd").iterdir()))
    recordings = Recordings(tmp_path)
    for number in range(1000):
        recordings.begin(f"replica-{number}").note(1, number)
    assert len(list(Path("/dev/fd").iterdir())) == before
    assert [step.given for step in read_recording(tmp_path / "replica-999.steps")] == [999]


def test_a_former_recording_stays(tmp_path: Path) -> None:
    for number in range(2):
        recordings = Recordings(tmp_path)
        recordings.begin("one").note(number, number)
        recordings.close()
    files = [tmp_path / name for name in ("one.steps", "one.1.steps")]
    assert [[each.given for each in read_recording(path)] for path in files] == [[0], [1]]


def test_what_is_no_recording_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "broken"
    path.write_bytes(b"\xc1")
    with pytest.raises(RecordingError, match="broken"):
        list(read_recording(path))


class Unlisted(NamedTuple):
    """A value of a test: no recording may name it."""

    number: int


class Colour(Enum):
    """Likewise."""

    RED = 1


@pytest.mark.parametrize("value", [Unlisted(1), Colour.RED])
def test_classes_outside_of_the_project_cannot_be_read(value: object) -> None:
    with pytest.raises(ValueError, match="no class of values"):
        unpack(pack(value))
