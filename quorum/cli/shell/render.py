"""Results of the shell as text for people, or as JSON for programs, one object per line.

Pure. Data other than UTF-8 is shown as escapes in text and as base64 in JSON, so that nothing is lost
silently. A text as it is may hold what acts on a terminal: the engine escapes that when it prints there;
JSON never holds such characters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from quorum.client import Stat, WatchEvent

_EVENTS = {1: "created", 2: "deleted", 3: "data changed", 4: "children changed"}


class Output(NamedTuple):
    """A result."""

    text: str  #: for a person; "" prints nothing
    fields: Mapping[str, object]  #: of the JSON object


def listing(path: str, children: list[str]) -> Output:
    """Show the children of a node."""
    return Output("\n".join(sorted(children)), {"path": path, "children": sorted(children)})


def content(path: str, data: bytes | None, stat: Stat, *, with_stat: bool) -> Output:
    """Show the data of a node; the text has its stat only where that was asked for."""
    text = "null" if data is None else data.decode("utf-8", "backslashreplace")
    if with_stat:
        text = f"{text}\n{_stat_lines(stat)}"
    return Output(text, {"path": path, **_data_fields(data), "stat": stat._asdict()})


def written(path: str, stat: Stat) -> Output:
    """Show that a node was changed."""
    return Output(f"{path} has version {stat.version}", {"path": path, "stat": stat._asdict()})


def created(path: str) -> Output:
    """Show that a node was created."""
    return Output(path, {"path": path})


def deleted(path: str, nodes: int) -> Output:
    """Show that a node was deleted; `nodes` counts those below it, too."""
    more = "" if nodes == 1 else f", {nodes} nodes in all"
    return Output(f"{path} deleted{more}", {"path": path, "deleted": nodes})


def described(path: str, stat: Stat) -> Output:
    """Show the stat of a node."""
    return Output(_stat_lines(stat), {"path": path, "stat": stat._asdict()})


def watching(path: str, stat: Stat | None) -> Output:
    """Show that a watch is armed; stat is None when the node does not exist."""
    state = "does not exist yet" if stat is None else f"has version {stat.version}"
    return Output(f"watching {path}, which {state}", {"watching": path, "stat": stat and stat._asdict()})


def changed(event: WatchEvent, stat: Stat | None) -> Output:
    """Show that a watch fired; stat is of the node as it was read right after, None when it did not exist."""
    name = _EVENTS[event.event_type]
    now = "" if stat is None else f"; it has version {stat.version}, {stat.children_count} children"
    return Output(
        f"{event.path} {name} (zxid 0x{event.zxid & (2**64 - 1):x}){now}",
        {
            "event": name.replace(" ", "_"),
            "path": event.path,
            "zxid": event.zxid,
            "stat": stat and stat._asdict(),
        },
    )


def synced(path: str) -> Output:
    """Show that the server is up to date."""
    return Output(f"synced {path}", {"synced": path})


def limited(path: str, limits: Mapping[str, int], used: Mapping[str, int] | None = None) -> Output:
    """Show the limits of a quota (-1: none), and what is used where that was asked for."""
    lines = [f"limits  {_pairs(limits)}", *([] if used is None else [f"used    {_pairs(used)}"])]
    fields: dict[str, object] = {"path": path, "limits": dict(limits)}
    return Output("\n".join(lines), fields if used is None else {**fields, "used": dict(used)})


def unlimited(path: str, names: Sequence[str]) -> Output:
    """Show which limits were taken away."""
    what = ", ".join(names) or "quota"
    return Output(f"{path} has no {what} any more", {"path": path, "deleted": list(names)})


def _pairs(numbers: Mapping[str, int]) -> str:
    return " ".join(f"{name}={number}" for name, number in numbers.items())


def explained(text: str) -> Output:
    """Show a text of `help`."""
    return Output(text, {"help": text})


def as_json(output: Output) -> str:
    """Render a result as one JSON object on one line."""
    text = json.dumps(output.fields, ensure_ascii=False, sort_keys=True)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _data_fields(data: bytes | None) -> dict[str, object]:
    if data is None:
        return {"data": None}
    try:
        return {"data": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode("ascii")}


def _stat_lines(stat: Stat) -> str:
    owner = f"0x{stat.ephemeral_owner & (2**64 - 1):x}" if stat.ephemeral_owner else "none"
    return "\n".join(
        (
            f"czxid           0x{stat.czxid:x}",
            f"mzxid           0x{stat.mzxid:x}",
            f"pzxid           0x{stat.pzxid:x}",
            f"ctime           {_time(stat.ctime_ms)}",
            f"mtime           {_time(stat.mtime_ms)}",
            f"version         {stat.version}",
            f"cversion        {stat.cversion}",
            f"aversion        {stat.aversion}",
            f"ephemeral owner {owner}",
            f"data length     {stat.data_length}",
            f"children        {stat.children_count}",
        )
    )


def _time(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
