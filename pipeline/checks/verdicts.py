"""What a checker concludes: ok, bad with a counter-example, or unknown because nothing was judged or the
search was too long.

Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.checks.history import Operation

OK: Final = "ok"
BAD: Final = "bad"
UNKNOWN: Final = "unknown"
#: Of a check that saw nothing.
NOTHING_JUDGED: Final = "nothing was there to judge"
#: Problems that a verdict names; further ones are only counted.
PROBLEMS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of one checker over one run."""

    check: str
    #: OK, BAD or UNKNOWN
    state: str
    #: how many operations or records it looked at
    judged: int
    #: what is wrong, or why it is unknown; empty for OK
    problems: tuple[str, ...] = ()
    counter_example: tuple[Operation, ...] = ()


def judge(
    check: str, judged: int, problems: Iterable[str], counter_example: Sequence[Operation] = ()
) -> Verdict:
    """Make a verdict: bad if there is a problem, and unknown if there was nothing to judge."""
    found = list(problems)
    if not judged and not found:
        return Verdict(check, UNKNOWN, 0, (NOTHING_JUDGED,))
    if len(found) > PROBLEMS_MAX:
        found[PROBLEMS_MAX:] = [f"and {len(found) - PROBLEMS_MAX} more"]
    return Verdict(check, BAD if found else OK, judged, tuple(found), tuple(counter_example))
