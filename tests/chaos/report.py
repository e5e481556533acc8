"""The summary of a run as text: nemeses, bites, operations, verdicts."""

from __future__ import annotations

from collections import Counter

from tests.chaos.recovery import table
from tests.chaos.run import Report


def summary(report: Report) -> str:
    """Return the tables that a person reads first."""
    struck = Counter(strike["nemesis"] for strike in report.strikes)
    bit = Counter(strike["nemesis"] for strike in report.strikes if strike["bite"])
    lines = [f"{'nemesis':<28} {'strikes':>7} {'bites':>5}"]
    lines += [f"{name:<28} {struck[name]:>7} {bit[name]:>5}" for name in sorted(struck)]
    counts = report.operations
    outcomes = ", ".join(f"{outcome} {counts[outcome]}" for outcome in ("ok", "fail", "unknown"))
    lines.append(f"operations {counts.total()}: {outcomes}")
    for verdict in report.verdicts:
        lines.append(f"{verdict.check:<28} {verdict.state:>7}   {verdict.judged} judged")
        lines += [f"    {problem}" for problem in verdict.problems]
        lines += [f"    {operation}" for operation in verdict.counter_example]
    if report.recovery:
        lines += ["", *table(report.recovery), ""]
    lines += [f"does not count: {what}" for what in report.missing]
    lines.append(f"{'FAILED' if report.failed else 'passed'}: {report.folder}/timeline.html")
    return "\n".join(lines)
