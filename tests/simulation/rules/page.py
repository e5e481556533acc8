"""The table of docs/internals/simulation.md: within how many seeds of a profile a rule that is off is found.

Which seed is the first moves with every draw of the world and with the product's messages. So a row allows at
least three times as many seeds as its rule took.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parents[3] / "docs" / "internals" / "simulation.md"
#: how many seeds a row may allow
WITHIN: Final = (20, 60, 200, 600)


class Row(NamedTuple):
    """A row of the table, as it stands there.

    Attributes:
        name: the rule's.
        beside: name of the rule that is switched off with it, "" for none.
        source: where the rule is written.
        profile: which faults it is searched with.
        within: how many of its seeds, from 1 on, find it, in digits.
        by: what noticed it last.
    """

    name: str
    beside: str
    source: str
    profile: str
    within: str
    by: str


def within_of(tried: int) -> int:
    """Return how many seeds a row allows for a rule that took so many."""
    return next((each for each in WITHIN if each >= 3 * tried), WITHIN[-1])


def read_tables(text: str) -> tuple[list[Row], dict[str, str]]:
    """Return the rows of the searches, and {guard that is never searched for: why} of the table behind them.

    Args:
        text: of the page.
    """
    part = text.partition("**Our own rules**")[2].partition("\n## ")[0]
    lines = [line.strip("| ") for line in part.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    rows = []
    for row in cells:
        if len(row) == 5 and row[2] != "profile":
            name, _, beside = row[0].partition(" + ")
            rows.append(Row(name, beside, *row[1:]))
    guards = {row[0]: row[1] for row in cells if len(row) == 2 and row[0] != "rule switched off"}
    return rows, guards
