"""docs/internals/moves.md: the diagrams of the tables of moves, made from the tables.

`python -m tests.site reference` writes the page; a test compares it with the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.core.replica_moves import MOVES as REPLICA_MOVES
from controller.core.phases import PHASE_MOVES
from quorum.server.phases import MOVES as CONNECTION_MOVES

_HEAD: Final = """# Tables of moves

What changes the role or phase of something, and to what. Made from the tables in the code by
`python -m tests.site reference`; do not edit.
"""


def name_of(kind: type) -> str:
    return kind.__name__.removesuffix("State").lower()


def diagram(title: str, changes: Iterable[tuple[str, str, str]]) -> str:
    """Return a diagram of (before, after, why or ""); what changes nothing is not shown."""
    arrows: dict[tuple[str, str], set[str]] = {}
    for before, after, why in changes:
        if before != after:
            arrows.setdefault((before, after), set()).add(why)
    lines = [
        f"    {before.replace(' ', '_')} --> {after.replace(' ', '_')}: {', '.join(sorted(whys))}".rstrip(
            ": "
        )
        for (before, after), whys in sorted(arrows.items())
    ]
    return "\n".join([f"## {title}", "", "```mermaid", "stateDiagram-v2", *lines, "```", ""])


def illegal_inputs() -> str:
    """Return in which roles a replica must not get an input."""
    roles = dict.fromkeys(role for role, _ in REPLICA_MOVES)
    lines = ["| input | illegal in |", "|---|---|"]
    for kind in dict.fromkeys(kind for _, kind in REPLICA_MOVES):
        illegal = [name_of(role) for role in roles if (role, kind) not in REPLICA_MOVES]
        if illegal:
            lines.append(f"| {kind.__name__} | {', '.join(illegal)} |")
    return "\n".join([*lines, ""])


def page() -> str:
    parts = [
        _HEAD,
        diagram(
            "A client connection of the quorum (`quorum/server/phases.py`)",
            ((phase.value, after.value, move.value) for (phase, move), after in CONNECTION_MOVES.items()),
        ),
        diagram(
            "A partition, as the controller sees it (`controller/core/phases.py`)",
            (
                (phase.value, after.value, "")
                for phase, all_after in PHASE_MOVES.items()
                for after in all_after
            ),
        ),
        diagram(
            "A replica (`broker/core/replica_moves.py`)",
            (
                (name_of(role), name_of(after), kind.__name__)
                for (role, kind), all_after in REPLICA_MOVES.items()
                for after in all_after
            ),
        ),
        illegal_inputs(),
    ]
    return "\n".join(parts)
