"""A run as one HTML file that needs nothing else: a lane a process, faults as bands, roles, culprits.

Reads the files of a run. The page draws itself on a canvas; the wheel zooms, dragging moves, and a click on
an operation shows it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.checks.history import NEVER_NS, Operation
from pipeline.checks.verdicts import Verdict

#: Operations that a page draws; of longer histories the first.
OPERATIONS_MAX: Final = 100_000
PAGE: Final = Path(__file__).with_name("timeline.html")


def write_timeline(
    folder: Path, record: dict[str, Any], operations: Sequence[Operation], verdicts: Sequence[Verdict]
) -> Path:
    """Write timeline.html into the folder of a run; returns its path."""
    began_ns = record["began_ns"]
    culprits = {_identity(each) for verdict in verdicts for each in verdict.counter_example}
    lanes = sorted({each.process for each in operations})
    content = {
        "lanes": lanes,
        "ends": (record["ended_ns"] - began_ns) / 1e6,
        "operations": [
            [
                lanes.index(each.process),
                round((each.invoked_ns - began_ns) / 1e6, 2),
                None if each.completed_ns == NEVER_NS else round((each.completed_ns - began_ns) / 1e6, 2),
                each.outcome,
                f"{each.operation} {each.key} {json.dumps(each.argument)} -> {json.dumps(each.result)}",
                int(_identity(each) in culprits),
            ]
            for each in operations[:OPERATIONS_MAX]
        ],
        "faults": [
            {
                "name": f"{fault['nemesis']}: {fault['target']}; {fault['bite'] or 'did not bite'}",
                "start": (fault["started_ns"] - began_ns) / 1e6,
                "stop": (fault["stopped_ns"] - began_ns) / 1e6,
                "ready": (fault["ready_ns"] - began_ns) / 1e6,
            }
            for fault in record["faults"]
        ],
        "roles": [
            [(role["time_ns"] - began_ns) / 1e6, role["leader"], role["controller"]]
            for role in record.get("roles", [])
        ],
        "verdicts": [f"{each.check}: {each.state} ({each.judged})" for each in verdicts]
        + [problem for each in verdicts for problem in each.problems],
    }
    # "</" would end the script element that carries the content.
    text = json.dumps(content).replace("</", "<\\/")
    page = PAGE.read_text(encoding="utf-8").replace("@TITLE@", html.escape(folder.name))
    path = folder / "timeline.html"
    path.write_text(page.replace("@CONTENT@", text), encoding="utf-8")
    return path


def _identity(operation: Operation) -> tuple[str, int, str]:
    return operation.process, operation.invoked_ns, operation.operation
