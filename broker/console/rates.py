"""How fast topics are written and read, from what brokers said at two looks. Pure.

Decides what a rate is. In: how far ends of logs moved, and how much the largest replica grew. Out: how far
committed offsets of all groups moved. So what is read without a group is not seen, and bytes that retention
removed meanwhile are missing. Soft state: what moved at the last looks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from quorum.metadata.paths import PartitionKey

#: looks that a rate is the mean of, and how long they may be apart
LOOKS_MAX: Final = 4
GAP_MAX_S: Final = 20.0
_SHOWN_DIGITS: Final = 3
Numbers = Mapping[PartitionKey, int]


class Rate(NamedTuple):
    """What moves in a second."""

    records_in: float = 0.0
    bytes_in: float = 0.0
    records_out: float = 0.0


class LogsMoved(NamedTuple):
    """One look.

    Attributes:
        ends, sizes: {partition: offset, bytes of its largest replica}.
        committed: {group: {partition: offset}}.
    """

    ends: Numbers
    sizes: Numbers
    committed: Mapping[str, Numbers]


class RateMeter:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self._last: tuple[float, LogsMoved] | None = None
        #: (seconds between two looks, {topic: [records in, bytes in, records out]})
        self._moved: deque[tuple[float, Mapping[str, list[int]]]] = deque(maxlen=LOOKS_MAX)

    def take(self, now_s: float, seen: LogsMoved) -> dict[str, Rate] | None:
        """Take a look.

        Args:
            now_s: of any clock that never goes back.
            seen: what brokers said.

        Returns:
            {topic: its rate}, of those where something moved; None: it takes another look.
        """
        last, self._last = self._last, (now_s, seen)
        if last is None or not 0 < now_s - last[0] <= GAP_MAX_S:
            self._moved.clear()
            return None
        self._moved.append((now_s - last[0], _moved(last[1], seen)))
        seconds = sum(each for each, _ in self._moved)
        sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for _, moved in self._moved:
            for topic, numbers in moved.items():
                sums[topic] = [one + other for one, other in zip(sums[topic], numbers, strict=True)]
        return {topic: Rate(*(each / seconds for each in numbers)) for topic, numbers in sums.items()}


def _moved(before: LogsMoved, now: LogsMoved) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    _add(found, 0, before.ends, now.ends)
    _add(found, 1, before.sizes, now.sizes)
    for group, offsets in now.committed.items():
        _add(found, 2, before.committed.get(group, {}), offsets)
    return found


def _add(
    found: dict[str, list[int]],
    column: int,
    before: Mapping[PartitionKey, int],
    now: Mapping[PartitionKey, int],
) -> None:
    for key, number in now.items():
        # What goes back was removed, reset or made anew.
        if (step := number - before.get(key, number)) > 0:
            found[key.topic][column] += step


def total(rates: Mapping[str, Rate]) -> Rate:
    """Return the rate of all topics together."""
    return Rate(*(sum(column) for column in zip(*rates.values(), strict=True))) if rates else Rate()


def shown(number: float) -> float:
    """Return a rate with as many digits as a page shows: what only wavers is not told again."""
    return float(f"{number:.{_SHOWN_DIGITS}g}")
