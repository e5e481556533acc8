"""docs/moves.md: the diagrams of the tables of moves, made from the tables.

`python -m tests.support.moves_page` writes the page; a test compares it with the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from broker.core.replica_moves import MOVES

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "moves.md"
_HEAD: Final = """# Tables of moves

Which inputs change the role of a pure machine, and to what. Made from the tables in the code by
`python -m tests.support.moves_page`; do not edit.
"""


def name_of(kind: type) -> str:
    return kind.__name__.removesuffix("State").lower()


def section(
    title: str,
    table: Mapping[tuple[type, type], Iterable[type]],
    roles: Iterable[type],
    inputs: Iterable[type],
) -> str:
    """Return a diagram of what changes a role, and a list of what is illegal where."""
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2"]
    changes: dict[tuple[str, str], list[str]] = {}
    for (role, kind), after in table.items():
        for new in after:
            if new is not role:
                changes.setdefault((name_of(role), name_of(new)), []).append(kind.__name__)
    lines += [
        f"    {old} --> {new}: {', '.join(sorted(kinds))}" for (old, new), kinds in sorted(changes.items())
    ]
    lines += ["```", "", "| input | illegal in |", "|---|---|"]
    for kind in inputs:
        illegal = [name_of(role) for role in roles if (role, kind) not in table]
        if illegal:
            lines.append(f"| {kind.__name__} | {', '.join(illegal)} |")
    return "\n".join(lines)


def page() -> str:
    roles, inputs = dict.fromkeys(role for role, _ in MOVES), dict.fromkeys(kind for _, kind in MOVES)
    replica = section("A replica (`broker/core/replica_moves.py`)", MOVES, roles, inputs)
    return f"{_HEAD}\n{replica}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
