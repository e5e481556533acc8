"""Results of the shell as text for people, or as JSON for programs, one object per line.

Pure. Data other than UTF-8 is shown as escapes in text and as base64 in JSON, so that nothing is lost
silently. A text as it is may hold what acts on a terminal: the engine escapes that when it prints there;
JSON never holds such characters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from quorum.client import Stat, WatchEvent


class Listing(NamedTuple):
    """Children of a node."""

    path: str
    children: list[str]


class ShownContent(NamedTuple):
    """Data of a node; stat is None when it was not asked for."""

    path: str
    data: bytes | None
    stat: Stat
    with_stat: bool


class ShownWrite(NamedTuple):
    """A node was changed."""

    path: str
    stat: Stat


class Created(NamedTuple):
    """A node was created."""

    path: str


class Deleted(NamedTuple):
    """A node was deleted, with so many others below it."""

    path: str
    nodes: int


class Described(NamedTuple):
    """Stat of a node."""

    path: str
    stat: Stat


class Watching(NamedTuple):
    """A watch is armed; stat is None when the node does not exist."""

    path: str
    stat: Stat | None


class Changed(NamedTuple):
    """A watch fired; stat is of the node as it was read right after, None when it did not exist then."""

    event: WatchEvent
    stat: Stat | None


class ShownSync(NamedTuple):
    """The server is up to date."""

    path: str


class Explained(NamedTuple):
    """Text of `help`."""

    text: str


Output = (
    Listing
    | ShownContent
    | ShownWrite
    | Created
    | Deleted
    | Described
    | Watching
    | Changed
    | ShownSync
    | Explained
)

_EVENTS = {1: "created", 2: "deleted", 3: "data changed", 4: "children changed"}


def as_text(output: Output) -> str:
    """Render a result for a person; "" prints nothing."""
    match output:
        case Listing(_, children):
            return "\n".join(sorted(children))
        case ShownContent(_, data, stat, with_stat):
            text = "null" if data is None else data.decode("utf-8", "backslashreplace")
            return f"{text}\n{_stat_lines(stat)}" if with_stat else text
        case ShownWrite(path, stat):
            return f"{path} has version {stat.version}"
        case Created(path):
            return path
        case Deleted(path, nodes):
            return f"{path} deleted" if nodes == 1 else f"{path} deleted, {nodes} nodes in all"
        case Described(_, stat):
            return _stat_lines(stat)
        case Watching(path, stat):
            state = "does not exist yet" if stat is None else f"has version {stat.version}"
            return f"watching {path}, which {state}"
        case Changed(event, stat):
            now = "" if stat is None else f"; it has version {stat.version}, {stat.children_count} children"
            return f"{event.path} {_EVENTS[event.event_type]} (zxid 0x{event.zxid & (2**64 - 1):x}){now}"
        case ShownSync(path):
            return f"synced {path}"
        case Explained(text):
            return text


def as_json(output: Output) -> str:
    """Render a result as one JSON object on one line."""
    text = json.dumps(_object(output), ensure_ascii=False, sort_keys=True)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _object(output: Output) -> Mapping[str, object]:
    match output:
        case Listing(path, children):
            return {"path": path, "children": sorted(children)}
        case ShownContent(path, data, stat, _):
            return {"path": path, **_data_fields(data), "stat": stat._asdict()}
        case ShownWrite(path, stat) | Described(path, stat):
            return {"path": path, "stat": stat._asdict()}
        case Created(path):
            return {"path": path}
        case Deleted(path, nodes):
            return {"path": path, "deleted": nodes}
        case Watching(path, stat):
            return {"watching": path, "stat": None if stat is None else stat._asdict()}
        case Changed(event, stat):
            name = _EVENTS[event.event_type].replace(" ", "_")
            shown = None if stat is None else stat._asdict()
            return {"event": name, "path": event.path, "zxid": event.zxid, "stat": shown}
        case ShownSync(path):
            return {"synced": path}
        case Explained(text):
            return {"help": text}


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
