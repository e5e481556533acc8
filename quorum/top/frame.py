"""Lays a frame of `quorate top` out: the verdict, nodes, brokers, topics and groups as lines of text.

Decides what is shown first and what is left out where there is little room. Names from outside act on no
terminal (`printable`). Pure; no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from quorum.errors import printable
from quorum.platform.terminal import table

#: checks below the verdict
FINDINGS_MAX: Final = 4
#: lines that a list has at least in a low terminal: its header, one row, and how many are missing
_LEAST: Final = 3
_STYLES: Final = {
    "healthy": "green",
    "warning": "yellow",
    "error": "red",
    "unreachable": "red",
    "down": "red",
    "offline": "red",
    "under-replicated": "yellow",
}


class Line(NamedTuple):
    """One line.

    Attributes:
        text: without control characters.
        style: as `styled` has it; None: plain.
    """

    text: str
    style: str | None = None


def frame(fields: Mapping[str, Any]) -> list[Line]:
    """Lay all of it out.

    Args:
        fields: as `look_once` returns them.
    """
    return _joined(_parts(fields))


def fitted(fields: Mapping[str, Any], columns: int, rows: int) -> list[Line]:
    """Lay out what has room.

    Args:
        fields: as `look_once` returns them.
        columns, rows: of the terminal.

    Returns:
        At most so many lines, none of them longer; a list that is cut says how much is missing.
    """
    head, *lists = _parts(fields)
    room = rows - len(head) - sum(1 for each in lists if each)
    sizes = [min(len(each), max(rows, _LEAST)) for each in lists]
    while sum(sizes) > room and max(sizes) > _LEAST:
        sizes[sizes.index(max(sizes))] -= 1
    kept = [_cut(each, size) for each, size in zip(lists, sizes, strict=True)]
    return [Line(line.text[:columns], line.style) for line in _joined([head, *kept])[:rows]]


def _cut(lines: list[Line], most: int) -> list[Line]:
    """Keep so many lines, the last of which says how many are missing."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], Line(f"… {len(lines) - most + 1} more", "dim")]


def _joined(parts: Sequence[list[Line]]) -> list[Line]:
    """Put an empty line between parts."""
    return [line for part in parts if part for line in (Line(""), *part)][1:]


def _parts(fields: Mapping[str, Any]) -> list[list[Line]]:
    nodes = [
        [each["id"], each["role"], each["term"], each["commit_index"], each["lag"], each["problem"] or ""]
        for each in fields["nodes"]
    ]
    brokers = [
        [each["id"], each["status"], _duty(each["id"], fields), *(each.get(key) for key in _BROKER)]
        for each in fields["brokers"]
    ]
    topics = [
        [each["name"], each["status"], each["partitions"], each["records"], _size(each["bytes"]), each["lag"]]
        for each in fields["topics"]
    ]
    groups = [
        [each["name"], each["status"], each["member_count"], each["topics"], each["lag"]]
        for each in fields["groups"]
    ]
    return [
        _head(fields),
        _listed(("NODE", "ROLE", "TERM", "COMMITTED", "LAG", ""), nodes),
        _listed(("BROKER", "STATE", "DUTY", "CLIENTS", "LEADS", "REPLICAS"), brokers),
        _listed(("TOPIC", "STATE", "PARTITIONS", "RECORDS", "SIZE", "LAG"), topics),
        _listed(("GROUP", "STATE", "MEMBERS", "TOPICS", "LAG"), groups),
    ]


_BROKER: Final = ("clients", "leads", "replicas")


def _head(fields: Mapping[str, Any]) -> list[Line]:
    verdict = fields["verdict"]
    said = "" if verdict == "healthy" else f": {printable(fields['sentence'])}"
    lines = [Line(f"{verdict}{said}", _STYLES[verdict])]
    found = fields["findings"][1:] if said else fields["findings"]
    # One line a check: a broker that is down is found in each of its partitions.
    firsts = {each["check"]: each for each in reversed(found)}
    total = Counter(each["check"] for each in found)
    shown = [*total][:FINDINGS_MAX]
    for check in shown:
        more = f" (and {total[check] - 1} more)" if total[check] > 1 else ""
        lines.append(Line(f"  {firsts[check]['severity']} {check}: {printable(firsts[check]['what'])}{more}"))
    missing = len(found) - sum(total[check] for check in shown)
    if missing:
        lines.append(Line(f"  … {missing} more (quorate doctor)", "dim"))
    counts = (
        *(("zxid", fields["zxid"]), ("partitions", fields["partitions"]), ("offline", fields["offline"])),
        *(("under-replicated", fields["under_replicated"]), ("not preferred", fields["not_preferred"])),
    )
    lines.append(Line(", ".join(f"{name} {count}" for name, count in counts if count is not None)))
    if fields["problem"]:
        lines.append(Line(f"lag is not known: {printable(fields['problem'])}", "yellow"))
    return lines


def _duty(broker_id: int, fields: Mapping[str, Any]) -> str:
    return " ".join(duty for duty in ("controller", "coordinator") if fields[duty] == broker_id)


def _listed(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[Line]:
    """Lay a list out; an empty one is left out."""
    if not rows:
        return []
    shown = [[cell if cell is None else printable(str(cell)) for cell in row] for row in rows]
    first, *lines = table(header, shown)
    return [
        Line(first, "bold"),
        *(Line(text, _STYLES.get(str(row[1]))) for text, row in zip(lines, rows, strict=True)),
    ]


def _size(count: int | None) -> str | None:
    """Say a number of bytes in a few characters."""
    if count is None:
        return None
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
