"""What a directory of an answer says of itself: `_job.json`, which pages can show without Spark.

Spark leaves names that begin with `_` out when it reads the directory. Decides how many rows and bars a page
needs.

Source: docs/clients/jobs.md, "Jobs"; docs/operate/console.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.jobs.output import text_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

SUMMARY: Final = "_job.json"
ROWS_MAX: Final = 100
BARS_MAX: Final = 500


def write_summary(
    folder: Path, name: str, answer: DataFrame, figure: Figure | None, *, is_finding: bool, begun_s: float
) -> None:
    """Write the summary of an answer into its directory.

    Args:
        folder: where the answer was written.
        name: of the job.
        answer: its rows.
        figure: its picture, whose times become bars; None: the job has none.
        is_finding: whether the answer is one.
        begun_s: wall clock time at which the job began to compute.
    """
    rows = [[None if cell is None else text_of(cell) for cell in row] for row in answer.take(ROWS_MAX)]
    bars = [] if figure is None else list(_bars(figure))[:BARS_MAX]
    fields = {
        "job": name,
        "began_ms": int(begun_s * 1000),
        "ended_ms": int(time.time() * 1000),
        "finding": is_finding,
        "rows": answer.count(),
        "columns": answer.columns,
        "first_rows": rows,
        "bars": bars,
    }
    (folder / SUMMARY).write_text(json.dumps(fields, indent=1) + "\n")


def _bars(figure: Figure) -> Iterator[dict[str, Any]]:
    """Yield the bars of a picture over time; a point is a bar without length."""
    for trace in figure.data:
        is_bar = trace.type == "bar"
        begins = trace.base if is_bar else trace.x
        for at, begin in enumerate(begins if begins is not None else ()):
            from_ms = _ms(begin)
            yield {
                "lane": str(trace.y[at]) if is_bar else str(trace.name),
                "kind": str(trace.name),
                "from_ms": from_ms,
                "until_ms": from_ms + (round(trace.x[at]) if is_bar else 0),
                "label": str(trace.hovertext[at]),
            }


def _ms(at: datetime) -> int:
    # Spark hands times over in this process's own zone.
    return round(at.timestamp() * 1000)
