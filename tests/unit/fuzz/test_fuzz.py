"""The fuzz targets find nothing in a short run, and find defects that are put in on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quorum.core.results import RunOutcome
from quorum.core.transaction import TreeTransaction
from quorum.server.answering import Pipeline
from quorum.server.client import ClientConnection
from quorum.server.requests import Requests
from quorum.wire.jute import INT, JuteReader
from quorum.wire.operations import OPERATIONS
from tests.fuzz.applying import ApplyTarget, ImportTarget
from tests.fuzz.connections import ConnectionTarget
from tests.fuzz.decoders import DecoderTarget
from tests.fuzz.loop import Target, attempt, fuzz

RUNS_MAX = 3000
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("target", "runs"),
    [(DecoderTarget, 2000), (ApplyTarget, 150), (ImportTarget, 150), (ConnectionTarget, 250)],
)
def test_a_short_run_finds_nothing(target: type[Target], runs: int) -> None:
    outcome = fuzz(target(), 20, runs=runs)
    assert outcome.finding is None, outcome.finding
    assert outcome.runs == runs
    assert outcome.kept > 10


def refuse_bad_text_otherwise(patch: pytest.MonkeyPatch) -> None:
    """Text that is not UTF-8 raises what the codec does not know."""

    def strict(reader: JuteReader, field: str) -> str:
        return (reader.buffer(field) or b"").decode()

    patch.setattr(JuteReader, "string", strict)


def look_behind_the_frame(patch: pytest.MonkeyPatch) -> None:
    """A version is read although the frame ends before it."""

    def decode(buffer: Any, start: int, end: int) -> tuple[list[Any], int]:
        reader = JuteReader(buffer, start, end, "delete")
        path = reader.string("path")
        if reader.position + 4 > len(buffer):
            return [2, path, -1], end
        return [2, path, INT.unpack_from(buffer, reader.position)[0]], reader.position + 4

    patch.setitem(OPERATIONS, 2, OPERATIONS[2]._replace(decode=decode))


def lose_a_deletion(patch: pytest.MonkeyPatch) -> None:
    """A deletion does not count the bytes that it frees."""
    delete = TreeTransaction.delete

    def careless(transaction: TreeTransaction, command: Any) -> Any:
        before = transaction.tree.data_bytes
        value = delete(transaction, command)
        transaction.tree.data_bytes = before
        return value

    patch.setattr(TreeTransaction, "delete", careless)


def trust_a_version(patch: pytest.MonkeyPatch) -> None:
    """A version is compared before its type is looked at."""
    set_data = TreeTransaction.set_data

    def careless(transaction: TreeTransaction, command: Any) -> Any:
        return set_data(transaction, command) if command[3] >= -1 else -103

    patch.setattr(TreeTransaction, "set_data", careless)


def let_a_reply_overtake(patch: pytest.MonkeyPatch) -> None:
    """Reads behind a write are answered at once."""
    receive_other = Requests._receive_other

    def careless(requests: Requests, xid: int, op: int, data: bytes, start: int, after: int) -> None:
        pipeline = requests._pipeline
        pending, pipeline._pending = pipeline._pending, type(pipeline._pending)()
        receive_other(requests, xid, op, data, start, after)
        pending.extend(pipeline._pending)
        pipeline._pending = pending

    patch.setattr(Requests, "_receive_other", careless)


def forget_to_read_on(patch: pytest.MonkeyPatch) -> None:
    """A connection with too much under way is never read again."""
    patch.setattr(ClientConnection, "proceed", lambda _connection: None)


def answer_half(patch: pytest.MonkeyPatch) -> None:
    """The last result of a longer run is not told."""
    deliver = Pipeline.deliver

    def careless(pipeline: Pipeline, outcome: RunOutcome) -> None:
        deliver(pipeline, outcome)
        if len(outcome.results) > 2 and pipeline._stream.out:
            pipeline._stream.out.pop()

    patch.setattr(Pipeline, "deliver", careless)


def forget_what_waited_behind_a_change(patch: pytest.MonkeyPatch) -> None:
    """Requests behind a change of members are dropped when it is answered."""
    reconfigured = Pipeline._reconfigured

    def careless(pipeline: Pipeline, xid: int, err: int | None) -> None:
        pipeline._stream.held_back.clear()
        reconfigured(pipeline, xid, err)

    patch.setattr(Pipeline, "_reconfigured", careless)


@pytest.mark.parametrize(
    ("target", "plant", "seed"),
    [
        (DecoderTarget, refuse_bad_text_otherwise, 1),
        (DecoderTarget, look_behind_the_frame, 1),
        (ApplyTarget, lose_a_deletion, 6),
        (ApplyTarget, trust_a_version, 6),
        (ConnectionTarget, let_a_reply_overtake, 1),
        (ConnectionTarget, forget_to_read_on, 1),
        (ConnectionTarget, answer_half, 1),
        (ConnectionTarget, forget_what_waited_behind_a_change, 1),
    ],
)
def test_a_planted_defect_is_found_and_made_small(
    target: type[Target], plant: Plant, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcome = fuzz(target(), seed, runs=RUNS_MAX)
        assert outcome.finding is not None
        assert len(outcome.finding.data) < 200
        again = attempt(target(), outcome.finding.data)
        assert again is not None
        assert again.kind == outcome.finding.kind
    assert attempt(target(), outcome.finding.data) is None


class Endless:
    """A target that never comes to an end, whatever it catches."""

    def seeds(self) -> list[bytes]:
        return [b""]

    def run(self, data: bytes) -> None:  # noqa: ARG002 - it does nothing with it
        while True:
            try:
                self._spin()
            except Exception:  # noqa: BLE001 - what is tested: this must not catch it
                continue

    def _spin(self) -> None:
        while True:
            pass


def test_an_input_without_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.loop.INPUT_SECONDS_MAX", 0.2)
    finding = attempt(Endless(), b"")
    assert finding is not None
    assert finding.kind[0] == "TookTooLongError"


def test_a_run_is_repeated_by_its_seed() -> None:
    runs = [fuzz(DecoderTarget(), seed, runs=150) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]
