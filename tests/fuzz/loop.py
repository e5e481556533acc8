"""The fuzz loop: inputs are changed at random; one that reaches new lines of the product is kept and changed
further. A run is decided by its seed and the number of inputs.

A finding is any exception that a target lets through, also one that says that the processor time or memory
of an input was too much. It is made small before it is told.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol

from tests.fuzz.mutate import mutate

#: processor time that an input may take
INPUT_SECONDS_MAX: Final = 10.0
#: inputs tried to make a finding smaller
SHRINK_TRIES_MAX: Final = 1000
#: watching lines makes an input several times slower, so that only some are watched
WATCHED_ONE_IN: Final = 4
_PRODUCT: Final = str(Path(__file__).resolve().parents[2] / "quorum")
#: a check of the product that targets call: which of its lines run says nothing
_CHECKS: Final = "invariants.py"


class Target(Protocol):
    """What is fuzzed."""

    def seeds(self) -> list[bytes]:
        """Inputs that mean something."""

    def run(self, data: bytes) -> None:
        """Try an input; whatever it raises is a finding."""


class TookTooLongError(BaseException):
    """An input did not end in time; no `except Exception` of the product may take it."""


class Finding(NamedTuple):
    """An input that breaks something."""

    data: bytes
    error: BaseException
    #: exception and the line of the product or target that raised it
    kind: tuple[str, str, int]


class Outcome(NamedTuple):
    """What a run came to."""

    runs: int
    kept: int
    #: pairs of lines of the product, one behind the other
    reached: int
    finding: Finding | None


class Coverage:
    """Which lines of the product follow which; a set that only grows."""

    def __init__(self) -> None:
        self._seen: set[tuple[CodeType, int, int]] = set()
        self._watched: dict[CodeType, bool] = {}

    def __len__(self) -> int:
        return len(self._seen)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Watch what runs inside."""
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        watched = self._watched.get(code)
        if watched is None:
            name = code.co_filename
            watched = self._watched[code] = name.startswith(_PRODUCT) and not name.endswith(_CHECKS)
        if not watched:
            return None
        seen, last = self._seen, 0

        def step(frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                line = frame.f_lineno
                seen.add((code, last, line))
                last = line
            return step

        return step


def attempt(target: Target, data: bytes) -> Finding | None:
    """Try one input, within its time."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TookTooLongError(f"more than {INPUT_SECONDS_MAX} s of processor time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, INPUT_SECONDS_MAX)
    try:
        target.run(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever comes out is what is looked for
        return Finding(data, error, _kind_of(error))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return None


def _kind_of(error: BaseException) -> tuple[str, str, int]:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return type(error).__name__, "", 0
    return type(error).__name__, place.tb_frame.f_code.co_filename, place.tb_lineno


def fuzz(
    target: Target,
    seed: int,
    *,
    seconds: float | None = None,
    runs: int | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Look for a finding until the time or the runs are over.

    Args:
        target: what is fuzzed.
        seed: of the changes.
        seconds: how long to look; None: until the runs are over.
        runs: how many inputs to try; None: until the time is over.
        progress: told now and then.

    Returns:
        What was tried, and the first finding, made small.
    """
    rng = random.Random(seed)
    coverage = Coverage()
    corpus: list[bytes] = []
    fresh = list(reversed(target.seeds()))
    begun = told = time.monotonic()
    tried = 0
    while (runs is None or tried < runs) and (seconds is None or time.monotonic() - begun < seconds):
        watched = bool(fresh) or rng.randrange(WATCHED_ONE_IN) == 0
        data = fresh.pop() if fresh else mutate(_choose(corpus, rng), corpus, rng)
        before = len(coverage)
        with coverage.tracing() if watched else nullcontext():
            finding = attempt(target, data)
        tried += 1
        if finding is not None:
            return Outcome(tried, len(corpus), len(coverage), shrink(target, finding))
        if len(coverage) > before or not corpus:
            corpus.append(data)
        if time.monotonic() - told >= 30:
            told = time.monotonic()
            progress(Outcome(tried, len(corpus), len(coverage), None))
    return Outcome(tried, len(corpus), len(coverage), None)


def _choose(corpus: list[bytes], rng: random.Random) -> bytes:
    """One of the inputs, the newest more often than the others."""
    return rng.choice(corpus[-20:] if rng.randrange(3) == 0 else corpus)


def shrink(target: Target, finding: Finding) -> Finding:
    """Take pieces away, and make bytes zero, as long as the same line raises the same."""
    tries = 0

    def better(data: bytes) -> bool:
        nonlocal finding, tries
        tries += 1
        found = attempt(target, data) if tries <= SHRINK_TRIES_MAX else None
        if found is None or found.kind != finding.kind:
            return False
        finding = found
        return True

    size = max(len(finding.data) // 2, 1)
    while size:
        at = 0
        while at < len(finding.data):
            data = finding.data
            if not better(data[:at] + data[at + size :]):
                at += size
        size //= 2
    for at, byte in enumerate(finding.data):
        if byte:
            better(finding.data[:at] + b"\0" + finding.data[at + 1 :])
    return finding
