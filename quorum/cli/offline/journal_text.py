"""Journals as text and JSON: what `quorate journal` prints. Decides the words alone.

What clients wrote is shown escaped in text, so that it can neither act on the terminal nor begin a line; JSON
has it as it is. A log also holds paths that no znode has: they were refused when they were applied.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from quorum.cli.offline.entries import Plain, stamp_text
from quorum.cli.offline.journal import DumpedRow, Verification, dump, judge
from quorum.errors import DataDirError, printable
from quorum.platform.runtime import Disk
from quorum.platform.terminal import styled, table

#: {verdict: (the last line, its colour)}
_VERDICTS = {
    "good": ("good", "green"),
    "torn": ("torn", "green"),
    "fallback": ("damaged, but a start works", "yellow"),
    "damaged": ("damaged", "red"),
}
#: characters of a value that the text shows
VALUE_CHARS_MAX = 80


def verification_lines(found: Verification, *, as_json: bool) -> Iterator[str]:
    """Yield what `verify` found.

    Args:
        found: all of it.
        as_json: one object instead of tables.

    Raises:
        DataDirError: why a start would refuse, behind the last line.
    """
    if as_json:
        yield json.dumps(_verification_json(found), sort_keys=True)
    else:
        yield from _verification_lines(found)
    if found.problems:
        raise found.problems[0]


def _verification_json(found: Verification) -> Plain:
    recovered = found.recovered
    facts: Plain = {
        "data_dir": found.data_dir,
        "verdict": found.verdict,
        "torn": found.torn,
        "problems": [_error_json(error) for error in found.problems],
        "survived": [_error_json(error) for error in found.survived],
        "fallbacks": found.fallbacks,
        "notes": found.notes,
        "segments": [
            {
                "name": each.name,
                "size_bytes": each.size_bytes,
                "groups": each.groups,
                "records": each.records,
                "entries": each.entries,
                "indexes": each.indexes,
                "terms": each.terms,
                "state": each.state,
                "unreadable": [gap._asdict() for gap in each.unreadable],
            }
            for each in found.segments
        ],
        "snapshots": [each._asdict() for each in found.snapshots],
    }
    if recovered is not None:
        facts["log"] = {
            "first_index": recovered.first_index,
            "last_index": recovered.last_index,
            "last_term": recovered.last_term,
            "term": recovered.hard_state.term,
            "voted_for": recovered.hard_state.voted_for,
            "origin_incarnation": recovered.origin_incarnation,
            "highest_install": None
            if recovered.highest_install is None
            else recovered.highest_install.log_index,
        }
    return facts


def _error_json(error: DataDirError) -> Plain:
    return {
        "problem": error.message,
        "remedy": error.remedy,
        "path": getattr(error, "path", None),
        "offset": getattr(error, "offset", None),
    }


def _verification_lines(found: Verification) -> Iterator[str]:
    rows = [
        [
            each.name.partition(".")[0].lstrip("0"),
            each.size_bytes,
            each.groups,
            each.records,
            each.entries,
            _span(each.indexes),
            _span(each.terms),
            each.state,
        ]
        for each in found.segments
    ]
    header, *body = table(
        ["SEGMENT", "BYTES", "GROUPS", "RECORDS", "ENTRIES", "INDEXES", "TERMS", "STATE"], rows
    )
    yield styled(header, "bold", sys.stdout)
    yield from map(printable, (*body, *_gap_lines(found)))
    if found.snapshots:
        rows = [[each.name, each.log_index, each.problem or "good"] for each in found.snapshots]
        header, *body = table(["SNAPSHOT", "INDEX", "STATE"], rows)
        yield ""
        yield styled(header, "bold", sys.stdout)
        yield from map(printable, body)
    yield ""
    yield from map(printable, _judgement_lines(found))
    words, colour = _VERDICTS[found.verdict]
    yield styled(words, colour, sys.stdout)


def _gap_lines(found: Verification) -> Iterator[str]:
    for each in found.segments:
        for gap in each.unreadable if each.damaged else ():
            yield f"  {each.name}: bytes {gap.start} to {gap.end} cannot be read: {gap.problem}"


def _judgement_lines(found: Verification) -> Iterator[str]:
    recovered = found.recovered
    if recovered is not None:
        first, last, hard_state = recovered.first_index, recovered.last_index, recovered.hard_state
        live = _span((first, last)) if last >= first else "empty"
        yield f"live log: {live}; ends with entry {last} of term {recovered.last_term}"
        yield f"hard state: term {hard_state.term}, vote {hard_state.voted_for or 'nobody'}"
    for note in found.notes:
        yield f"note: {note}"
    if found.torn:
        yield f"torn, no damage; the next start cuts it off: {found.torn}"
    for error in (*found.problems[1:], *found.survived):
        yield f"also: {error}" if found.problems else str(error)
    for fallback in found.fallbacks:
        yield f"a start gets by: it {fallback}"


def _span(bounds: tuple[int, int] | None) -> str | None:
    if bounds is None:
        return None
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]}-{bounds[1]}"


def dump_lines(
    disk: Disk, data_dir: str, *, first: int | None, last: int | None, values: bool, as_json: bool
) -> Iterator[str]:
    """Yield what `dump` yields, a line or a JSON object each; arguments and errors as there.

    Raises:
        DataDamagedError: not everything could be read, and that is damage; behind the last line.
    """
    gaps = 0
    if not as_json:
        yield styled(_COLUMNS, "bold", sys.stdout)
    for row in dump(disk, data_dir, first=first, last=last, values=values):
        gaps += row.content["type"] == "unreadable"
        if as_json:
            yield json.dumps({"segment": row.segment, "offset": row.offset, **row.content})
        else:
            yield from map(printable, _row_lines(row))
    if gaps:
        torn = judge(disk, data_dir)
        if as_json:
            yield json.dumps({"type": "verdict", "verdict": "torn" if torn else "good", "torn": torn})
        else:
            told = f"cuts it off: {printable(torn)}" if torn else "closes the last group"
            yield f"no damage; the next start {told}"


_COLUMNS = f"{'SEGMENT:OFFSET':<16} {'INDEX':>9} {'TERM':>6} {'KIND':<12} {'STAMP':<24} {'BYTES':>8}  CONTENT"


def _row_lines(row: DumpedRow) -> Iterator[str]:
    """Lay out one record: one line, and one more per command where the commands are there."""
    content: dict[str, Any] = dict(row.content)
    place = f"{row.segment.partition('.')[0].lstrip('0')}:{row.offset}"
    kind = content.pop("type")
    if kind == "unreadable":
        yield f"{place:<16} cannot be read up to byte {content['end']}: {content['problem']}"
        return
    index = term = size = stamp = ""
    if kind == "entry":
        index, term, kind = content.pop("index"), content.pop("term"), content.pop("kind")
        stamp, size = stamp_text(content.pop("stamp_ms")), content.pop("bytes")
    runs = content.pop("content", ())
    facts = " ".join(f"{name}={_fact(value)}" for name, value in content.items())
    yield f"{place:<16} {index:>9} {term:>6} {kind:<12} {stamp:<24} {size:>8}  {facts}".rstrip()
    for run in runs:
        for line in _command_lines(run["commands"]):
            yield f"{'':16} session {run['session_id']} {line}"


def _fact(value: object) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _command_lines(commands: Iterable[dict[str, Any]]) -> Iterator[str]:
    for command in commands:
        parts = [str(command["op"])]
        for name, value in command.items():
            if name == "data_base64":
                parts.append(f"data={_shortened(repr(base64.b64decode(value))[1:])}")
            elif name == "operations" and isinstance(value, list):
                parts.append(f"of {len(value)}:")
            elif name != "op" and value is not None:
                parts.append(f"{name}={_shortened(_fact(value))}")
        yield " ".join(parts)
        operations = command.get("operations")
        if isinstance(operations, list):
            yield from (f"  {line}" for line in _command_lines(operations))


def _shortened(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
