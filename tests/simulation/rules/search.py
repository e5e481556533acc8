"""Does a seed find a rule that is switched off? And does the same seed find nothing when it is on?

Every run happens in this process; the product's code is as it was when a function here returns.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.simulation.rules.catalogue import RULES, changes_of
from tests.simulation.rules.edits import Change, made
from tests.simulation.world import FULL, Span, run_seed


class Finding(NamedTuple):
    """A seed that fails with a rule switched off and passes with it.

    Attributes:
        seed: which.
        by: the invariant or checker that spoke, or what the product said itself.
        story: its first line.
        at_ms: when, in virtual time.
        trace: of the failing run.
    """

    seed: int
    by: str
    story: str
    at_ms: float
    trace: int


class Hunt(NamedTuple):
    """What came of some seeds.

    Attributes:
        tried: how many were run.
        finding: the first, if any.
        spoilt: seeds that fail with the rule switched on, too, and so prove nothing.
    """

    tried: int
    finding: Finding | None
    spoilt: tuple[int, ...] = ()


def try_seed(changes: Sequence[Change], seed: int, profile: str = "mix", span: Span = FULL) -> Finding | None:
    """Run one seed with rules switched off; None if nothing broke."""
    with made(changes):
        outcome = run_seed(seed, profile, span=span)
    if outcome.ok:
        return None
    by, story = _read(outcome.story)
    return Finding(seed, by, story, outcome.sim_ms, outcome.trace)


@functools.lru_cache(maxsize=1024)
def story_when_on(seed: int, profile: str, span: Span = FULL) -> str:
    """Return what breaks in a seed with every rule on, "" if nothing does."""
    return run_seed(seed, profile, span=span).story


def hunt(changes: Sequence[Change], seeds: Iterable[int], profile: str = "mix", span: Span = FULL) -> Hunt:
    """Run seeds with rules switched off until one finds that, and passes with them on."""
    tried = 0
    spoilt: list[int] = []
    for seed in seeds:
        tried += 1
        finding = try_seed(changes, seed, profile, span)
        if finding is None:
            continue
        if not story_when_on(seed, profile, span):
            return Hunt(tried, finding, tuple(spoilt))
        spoilt.append(seed)
    return Hunt(tried, None, tuple(spoilt))


def hunt_for(name: str, seeds: Iterable[int], *, beside: bool) -> Hunt:
    """Run seeds with the rule of this name switched off, and the one beside it where that is asked."""
    rule = RULES[name]
    return hunt(changes_of(rule) if beside else rule.changes, seeds, rule.profile)


def _read(story: str) -> tuple[str, str]:
    """Return who says so, and what, in one line each."""
    lines = story.strip().splitlines()
    if lines[0].startswith("Traceback"):
        who, _, what = lines[-1].partition(": ")
        return who.rpartition(".")[2], what
    if lines[0].startswith("only "):
        return "progress", lines[0]
    by, _, what = lines[0].partition(": ")
    if what.endswith(" violations:") and len(lines) > 1:
        what = lines[1].partition(": ")[2]
    return by, what
