"""How an answer leaves a job: a table or lines on the terminal, files in a directory, a picture in one file.

Decides the text of a cell. A table ends after `--rows` rows and says how many there are.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from quorum.errors import printable
from quorum.platform.terminal import table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

CELL_CHARS_MAX: Final = 120


def deliver(answer: DataFrame, arguments: argparse.Namespace) -> None:
    """Print an answer, or write it to --out."""
    if arguments.out is not None:
        flat = _without_arrays(answer) if arguments.format == "csv" else answer
        writer = flat.write.mode("errorifexists")
        (writer.option("header", True) if arguments.format == "csv" else writer).format(
            arguments.format
        ).save(str(arguments.out))
        print(f"{answer.count()} rows in {arguments.out}")
    elif arguments.format == "json":
        for row in answer.toLocalIterator():
            print(json.dumps(row.asDict(recursive=True), default=text_of))
    elif arguments.format == "csv":
        lines = csv.writer(sys.stdout)
        lines.writerow(answer.columns)
        for row in answer.toLocalIterator():
            lines.writerow("" if value is None else text_of(value) for value in row)
    else:
        _print_table(answer, arguments.rows)


def draw(figure: Figure, arguments: argparse.Namespace) -> None:
    """Write a picture as one HTML file that needs no network."""
    figure.write_html(str(arguments.picture), include_plotlyjs=True)
    print(f"picture in {arguments.picture}")


def _print_table(answer: DataFrame, rows_max: int) -> None:
    rows = answer.limit(rows_max + 1).collect()
    if not rows:
        print("no rows")
        return
    names = [name.upper().replace("_", " ") for name in answer.columns]
    cells = [[_cell(value) for value in row] for row in rows[:rows_max]]
    print("\n".join(table(tuple(names), [tuple(row) for row in cells])))
    if len(rows) > rows_max:
        print(f"… of {answer.count()} rows; --rows N prints more, --format with --out writes all")


def _cell(value: Any) -> str:
    text = "-" if value is None else printable(text_of(value))
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def text_of(value: Any) -> str:
    """Return a value as text."""
    if isinstance(value, datetime):
        # Spark hands times over in this process's own zone.
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')}Z"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _without_arrays(answer: DataFrame) -> DataFrame:
    """CSV has no arrays: their elements, separated by commas."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    return answer.select(
        *(
            F.array_join(F.col(field.name).cast("array<string>"), ",").alias(field.name)
            if isinstance(field.dataType, ArrayType)
            else F.col(field.name)
            for field in answer.schema
        )
    )
