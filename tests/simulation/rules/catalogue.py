"""All rules, by area."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules import elections, forwarding, journal, members, replication, sessions, snapshots
from tests.simulation.rules.edits import Change
from tests.simulation.rules.rule import Rule

#: {area: its rules}
AREAS: Final[dict[str, tuple[Rule, ...]]] = {
    "replication": replication.RULES,
    "elections": elections.RULES,
    "members": members.RULES,
    "journal": journal.RULES,
    "snapshots": snapshots.RULES,
    "forwarding": forwarding.RULES,
    "sessions": sessions.RULES,
}
#: {name: rule}
RULES: Final[dict[str, Rule]] = {rule.name: rule for rules in AREAS.values() for rule in rules}
#: {name: area}
AREA_OF: Final[dict[str, str]] = {rule.name: area for area, rules in AREAS.items() for rule in rules}


def changes_of(rule: Rule) -> tuple[Change, ...]:
    """Return what is changed in a search for a rule: its own changes, and those of the rule beside it."""
    return rule.changes + (RULES[rule.beside].changes if rule.beside else ())
