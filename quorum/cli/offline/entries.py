"""What a record of the journal says, as plain values for a person or a program to read. Pure.

Decides names and shapes only; whatever a payload holds, the answer is a description, because what is looked
at may be wrong. The session key of entry 1 and the identities of clients are left out: a description is made
to be passed on.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import msgpack

from quorum.core.codes import (
    OP_ATTACH,
    OP_CHECK,
    OP_CLOSE_SESSION,
    OP_CREATE,
    OP_CREATE2,
    OP_CREATE_CONTAINER,
    OP_CREATE_SESSION,
    OP_CREATE_TTL,
    OP_DELETE,
    OP_MULTI,
    OP_SET_ACL,
    OP_SET_DATA,
    OP_SYNC,
)
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import Install, OriginIncarnation, Record, SegmentHeader
from quorum.raft.requests.payloads import (
    ENFORCING_BATCH_FORMAT,
    IMPORT_FORMAT,
    PayloadFormatError,
    fields_of,
)
from quorum.raft.requests.requests import parse_request

#: {opcode: (name, names of the fields after the opcode)}
_COMMANDS: Final[dict[object, tuple[str, tuple[str, ...]]]] = {
    OP_CREATE: ("create", ("path", "data", "acl", "flags")),
    OP_CREATE2: ("create2", ("path", "data", "acl", "flags")),
    OP_CREATE_CONTAINER: ("createContainer", ("path", "data", "acl", "flags")),
    OP_CREATE_TTL: ("createTTL", ("path", "data", "acl", "flags", "ttl_ms")),
    OP_SET_ACL: ("setACL", ("path", "acl", "aversion")),
    OP_DELETE: ("delete", ("path", "version")),
    OP_SET_DATA: ("setData", ("path", "data", "version")),
    OP_CHECK: ("check", ("path", "version")),
    OP_SYNC: ("sync", ("path",)),
    OP_MULTI: ("multi", ("operations",)),
    OP_CREATE_SESSION: ("createSession", ("timeout_ms",)),
    OP_CLOSE_SESSION: ("closeSession", ()),
    OP_ATTACH: ("attach", ()),
}
_SECRETS: Final = frozenset({"session_key"})

Plain = dict[str, object]


def describe_record(record: Record | SegmentHeader) -> Plain:
    """Describe a record.

    Args:
        record: as decoded.

    Returns:
        Values that JSON can hold; "type" first.
    """
    match record:
        case Entry():
            return _describe_entry(record)
        case HardState():
            return {"type": "hard_state", "term": record.term, "voted_for": record.voted_for}
        case Install():
            return {"type": "install", **record._asdict()}
        case OriginIncarnation():
            return {"type": "origin_incarnation", "number": record.number}
        case SegmentHeader():
            return {"type": "header", **record._asdict()}


def _describe_entry(entry: Entry) -> Plain:
    index, term, kind, stamp_ms, payload = entry
    described: Plain = {
        "type": "entry",
        "index": index,
        "term": term,
        "kind": kind.name.lower(),
        "stamp_ms": stamp_ms,
        "bytes": len(payload),
    }
    try:
        described |= _describe_payload(kind, payload)
    except PayloadFormatError as error:
        described["problem"] = error.message
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        described["problem"] = f"the payload is not that of a {kind.name.lower()} entry: {error}"
    return described


def _describe_payload(kind: EntryKind, payload: bytes) -> Plain:
    if kind is EntryKind.NOOP:
        return {}
    if kind in CONFIGURATION_KINDS:
        return {"configuration": public_configuration(json.loads(payload))}
    shape, *fields = fields_of(kind, payload)
    if kind is EntryKind.REGISTER:
        node_id, incarnation = fields
        return {"node_id": node_id, "origin_incarnation": incarnation}
    if kind is EntryKind.CONTROL:
        (proposals,) = fields
        return {"proposals": jsonable(proposals)}
    if shape == IMPORT_FORMAT:
        origin, incarnation, number, steps = fields
        return {"origin": origin, "origin_incarnation": incarnation, "number": number} | {
            "import": jsonable(steps)
        }
    enforces = {"enforces_quota": True} if shape == ENFORCING_BATCH_FORMAT else {}
    return _describe_batch(fields) | enforces


def public_configuration(plain: object) -> Plain:
    """Return the JSON object of a configuration without the session key that entry 1 holds besides."""
    if not isinstance(plain, dict):
        raise ValueError(f"a configuration is {type(plain).__name__}, not an object")
    return {name: value for name, value in plain.items() if name not in _SECRETS}


def _describe_batch(batch: list[Any]) -> Plain:
    origin, incarnation, number, runs = batch
    described: Plain = {"origin": origin, "origin_incarnation": incarnation, "number": number}
    request = parse_request(runs)
    if request is not None:
        return {**described, "request": {**request._asdict(), "action": request.action.name.lower()}}
    return described | {
        "content": [
            {"session_id": f"0x{session_id:x}", "commands": [describe_command(each) for each in commands]}
            for session_id, _nonce, _identities, commands in runs
        ],
    }


def describe_command(command: object) -> Plain:
    """Describe one command of a client: "op", then its fields by name; data as base64."""
    if not isinstance(command, list) or not command:
        return {"op": "unknown", "fields": jsonable(command)}
    opcode, *fields = command
    name, names = _COMMANDS.get(opcode if isinstance(opcode, int) else None, (f"opcode {opcode!r}", ()))
    described: Plain = {"op": name}
    if len(names) != len(fields):
        described["fields"] = jsonable(fields)
        return described
    for field, value in zip(names, fields, strict=True):
        if field == "data" and isinstance(value, bytes):
            described["data_base64"] = base64.b64encode(value).decode()
        elif field == "operations" and isinstance(value, list):
            described[field] = [describe_command(each) for each in value]
        else:
            described[field] = jsonable(value)
    return described


def jsonable(value: object) -> object:
    """Return a value that came out of msgpack in a form that JSON can hold; bytes become base64."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return repr(value)
