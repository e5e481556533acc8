"""Recordings of machines, played again: every step must give the same effects."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from broker.core.replica import ReplicaMachine
from controller.core.inputs import Elected
from controller.core.machine import ControllerMachine
from controller.core.options import Counters
from quorum.metadata.errors import MetadataDecodeError
from quorum.platform.recording import Step, pack, read_recording, unpack


class PlayedLog:
    """What a step saw of a log."""

    def __init__(self, seen: tuple[Any, ...]) -> None:
        self.topic_id: uuid.UUID | None
        self.topic_id, self.log_start_offset, self.log_end_offset, self.latest_epoch, self._ends = seen

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """No transaction is here."""
        return high_watermark

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        return self._ends[leader_epoch]  # type: ignore[no-any-return]  # as recorded


def replay_controller(path: Path) -> int:
    """Play a recorded term; returns its steps."""
    steps = list(read_recording(path))
    elected, options, settings = _of(steps[0])
    unsigned = {_of(step)[1:]: step.taken for step in steps if _is_unsigned(step)}

    def check(*given: object) -> None:
        if given in unsigned:
            error = MetadataDecodeError(str(given[0]), "", "", "")
            error.message = str(unsigned[given])
            raise error

    assert isinstance(elected, Elected)
    machine = ControllerMachine(
        elected, options=options, default_settings=settings, counters=Counters(), check_signed=check
    )
    played = [step for step in steps[1:] if not _is_unsigned(step)]
    for step in played:
        effects = machine.step(step.given, step.now_ms)  # type: ignore[arg-type]  # an input
        assert unpack(pack(effects)) == step.taken, step
    return len(played)


def replay_replica(path: Path) -> int:
    """Play a recorded replica; returns its steps."""
    steps = list(read_recording(path))
    _, broker_id, min_insync = _of(steps[0])
    machine = ReplicaMachine(broker_id, min_insync)
    for step in steps[1:]:
        name, *arguments = _of(step)
        if name in ("step", "note_fetch"):
            arguments = [*arguments[:-1], PlayedLog(arguments[-1]), step.now_ms]
        taken = getattr(machine, name)(*arguments)
        assert unpack(pack(taken)) == step.taken, step
    return len(steps) - 1


def _of(step: Step) -> tuple[Any, ...]:
    assert isinstance(step.given, tuple)
    return step.given


def _is_unsigned(step: Step) -> bool:
    return isinstance(step.given, tuple) and step.given[:1] == ("unsigned",)
