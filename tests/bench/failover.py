"""The pause that clients of the other nodes see when a leader goes: killed, stopped, terminated, transferred.

Three real nodes with the settings that are shipped, on loopback, and one client on each node that does not
lead: synchronous (one write at a time) or pipelined. A round's gap is the longest time between two
acknowledged writes of a client around the change, the worse of the two clients. Counts every client that met
an error; there must be none. Times are printed and never asserted. Source: docs/internals/benchmarks.md;
docs/internals/consensus.md, "Rules of the core".
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.servers import QuorateServers
from tests.support.leader_changes import ENDINGS, SteadyWriter, bring_back, change_leader
from tests.support.nodes import QuorateNodes

#: {kind of client: writes in flight}
WINDOWS = {"synchronous": 1, "pipelined": 64}
#: {ending: median that is aimed at, in seconds}
GOALS_S = {"killed": 0.15, "stopped": 0.60}


@dataclass
class Measured:
    """All rounds of one ending with one kind of client."""

    ending: str
    client: str
    gaps_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def measure(nodes: QuorateNodes, into: Measured, number: int) -> None:
    """Run one round."""
    leader = nodes.leader()
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                SteadyWriter(
                    nodes.host(node_id), f"/failover-{number}-{node_id}", window=WINDOWS[into.client]
                )
            )
            for node_id in nodes.node_ids
            if node_id != leader
        ]
        struck_s = change_leader(nodes, into.ending, leader, writers)
    into.gaps_s.append(max(writer.gap_s(struck_s) for writer in writers))
    into.errors += [writer.error for writer in writers if writer.error]
    bring_back(nodes, into.ending, leader)
    print(
        f"{into.ending}, {into.client}: {into.gaps_s[-1] * 1000:.0f} ms {into.errors or ''}",
        file=sys.stderr,
        flush=True,
    )


def table(measured: Sequence[Measured]) -> list[str]:
    """Rows of a Markdown table."""
    rows = [
        "| leader | clients of the other nodes | rounds | median ms | p90 ms | max ms | goal ms | errors |",
        "|" + " --- |" * 8,
    ]
    for one in measured:
        ordered = sorted(one.gaps_s)
        p90 = ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
        goal = f"{GOALS_S[one.ending] * 1000:.0f}" if one.ending in GOALS_S else "–"
        numbers = [f"{value * 1000:.0f}" for value in (statistics.median(ordered), p90, ordered[-1])]
        cells = [one.ending, one.client, str(len(ordered)), *numbers, goal, str(len(one.errors))]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def run(folder: Path, rounds: int, only: str = "") -> list[str]:
    """Run all rounds of the cases whose name contains `only`; returns the lines of the report."""
    wanted = [
        Measured(ending, client) for ending in ENDINGS for client in WINDOWS if only in f"{ending}, {client}"
    ]
    servers = QuorateServers(folder)
    try:
        # Round by round, so that a disturbance of the machine meets all cases alike.
        for turn in range(rounds):
            for place, one in enumerate(wanted):
                measure(servers.nodes, one, turn * len(wanted) + place)
    finally:
        servers.close()
    failed = [f"- {one.ending}, {one.client}: {error}" for one in wanted for error in one.errors]
    return ["", *table(wanted), *(["", "Errors of clients:", *failed] if failed else [])]
