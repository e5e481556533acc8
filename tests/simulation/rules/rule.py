"""What a rule of the product is to the simulation: a name, where it is written, and how to switch it off."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.rules.edits import Change


@dataclass(frozen=True)
class Rule:
    """A rule that can be switched off.

    Attributes:
        name: as the command line takes it.
        source: where the rule is written.
        says: the rule itself.
        changes: what switches it off.
        guard: "" for a rule whose lack is harm enough. Else why its lack alone is not: it matters only where
            something else is broken, too, or costs time and no promise. Such a rule is searched for beside
            the rule that it guards, if it names one.
        beside: name of a rule that is switched off together with this guard; "" for none.
        profile: which faults it is searched with: the ordinary mix, or those that it is about where the mix
            seldom has what it takes.
    """

    name: str
    source: str
    says: str
    changes: tuple[Change, ...]
    guard: str = ""
    beside: str = ""
    profile: str = "mix"
