"""The verdict over a whole run: all checkers, in the order in which they stand on each other.

Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.checkers.evidence import Evidence, Violation
from tests.simulation.checkers.facts import check_failures
from tests.simulation.checkers.families import check_counters, check_finals, check_lists, facts_of_lists
from tests.simulation.checkers.order import (
    check_density,
    check_real_time,
    check_sessions_see_order,
    floors_of,
)
from tests.simulation.checkers.registers import check_registers
from tests.simulation.checkers.sessions import check_sessions
from tests.simulation.checkers.watches import check_watches
from tests.simulation.history import Final, History


def judge(history: History, finals: Sequence[Final] = (), *, others_max: int = 0) -> list[Violation]:
    """Check a history and the final states against I5, I6, I8 to I15.

    Args:
        history: of all client processes; nobody else may have written.
        finals: the members' states after everything settled, if known.
        others_max: transactions that no client asked for, such as changes of the members.

    Returns:
        What was violated, the first findings first; empty if all is well.
    """
    evidence = Evidence(history, finals)
    violations = evidence.violations
    floors = floors_of(evidence)
    violations += check_real_time(evidence, floors)
    violations += check_sessions_see_order(evidence)
    violations += check_failures(evidence)
    violations += check_density(evidence, others_max=others_max)
    watches = check_watches(evidence)
    violations += watches.violations
    facts = facts_of_lists(evidence)
    for path, more in watches.facts.items():
        facts.setdefault(path, []).extend(more)
    registers = check_registers(evidence, floors, facts)
    violations += registers.violations
    violations += check_lists(evidence)
    violations += check_counters(evidence)
    violations += check_finals(evidence.finals)
    violations += check_sessions(evidence, registers.vanished)
    return violations
