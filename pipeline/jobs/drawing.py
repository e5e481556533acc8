"""Pictures of a history: bars over time, one lane a broker or a partition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

#: Of one picture; a browser slows down beyond.
BARS_MAX: Final = 5_000


class Bar(NamedTuple):
    """One stretch of time in a lane."""

    lane: str
    begin: datetime
    end: datetime
    #: decides the colour
    kind: str
    #: what is shown when the mouse is over it
    label: str


def limited(rows: DataFrame) -> list[Any]:
    """Collect as many rows as a picture can show."""
    collected: list[Any] = rows.limit(BARS_MAX).collect()
    return collected


def ends_of(changes: DataFrame) -> tuple[datetime, datetime]:
    """Return the times of the first and the last change: what has not ended goes on until then."""
    from pyspark.sql import functions as F

    [row] = changes.agg(F.min("ts"), F.max("ts")).collect()
    return row[0], row[1]


def timeline(title: str, bars: Sequence[Bar]) -> Figure:
    """Draw bars over time."""
    from plotly import graph_objects

    figure = graph_objects.Figure()
    for kind in dict.fromkeys(bar.kind for bar in bars):
        some = [bar for bar in bars if bar.kind == kind]
        figure.add_bar(
            name=kind,
            orientation="h",
            y=[bar.lane for bar in some],
            base=[bar.begin for bar in some],
            x=[(bar.end - bar.begin).total_seconds() * 1000 for bar in some],
            hovertext=[bar.label for bar in some],
        )
    lanes = sorted({bar.lane for bar in bars}, reverse=True)
    figure.update_layout(title=title, barmode="overlay", height=160 + 24 * len(lanes))
    figure.update_xaxes(type="date")
    figure.update_yaxes(categoryorder="array", categoryarray=lanes)
    return figure
