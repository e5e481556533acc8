"""The table of docs/simulation.md: which seed found which rule that was switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parents[3] / "docs" / "simulation.md"


class Row(NamedTuple):
    """A row of the table, as it stands there.

    Attributes:
        name: the rule's.
        beside: name of the rule that is switched off with it, "" for none.
        source: where the rule is written.
        seed: the first that found it, in digits.
        by: what noticed it.
    """

    name: str
    beside: str
    source: str
    seed: str
    by: str


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
        if len(row) == 5 and row[2] != "first seed":
            name, _, beside = row[0].partition(" + ")
            rows.append(Row(name, beside, row[1], row[2], row[4]))
    guards = {row[0]: row[1] for row in cells if len(row) == 2 and row[0] != "rule switched off"}
    return rows, guards
