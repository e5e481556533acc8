"""What a snapshot file holds, and whether a node would take it.

Checks what a start checks (CRCs, digest of the file, shapes, references, the Stats and counters that follow
from the tree, the name against the header) and whatever else is kept twice. The digests of the state cannot
be computed again from a snapshot: they are chains over the log. A finished snapshot never changes, so it may
belong to a node that runs. Changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from quorum.cli.offline.entries import Plain, jsonable, public_configuration
from quorum.core.machine import StateMachine
from quorum.core.records import ACL_MASK, HEADER, STAT_BYTES, acl_field_of, data_of
from quorum.core.tree import Directory, Node, record_of, stat_of
from quorum.errors import UsageError, printable
from quorum.node.storage import REFUSALS, load_machine
from quorum.platform.runtime import Disk, File
from quorum.raft.snapshots.format import (
    REMEDY,
    SnapshotDamagedError,
    SnapshotHeader,
    SnapshotReader,
    SnapshotVersionError,
)

#: the name that a node gives to a snapshot: log index and term
SNAPSHOT_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.snapshot", re.ASCII)
#: a machine that is only looked at keeps no overlay
_OVERLAY_BYTES_MAX = 0
_STAT_NAMES = (
    *("czxid", "mzxid", "ctime", "mtime", "version", "cversion", "aversion"),
    *("ephemeral_owner", "data_length", "num_children", "pzxid"),
)


def inspect(disk: Disk, path: str, show: Callable[[str], object], *, tree: bool) -> None:
    """Check and load a snapshot, and show what it holds as JSON; of a damaged one what can still be read.

    Args:
        disk: for reading.
        path: the file.
        show: takes a line: one object with the facts, or one for each znode.
        tree: all znodes instead of the facts.
    """
    file = disk.open(path)
    facts: Plain = {"path": path, "size_bytes": file.size()}
    try:
        reader = SnapshotReader(file)
        header = reader.header
        facts |= header._asdict() | {"configuration": _configuration(header.configuration_payload)}
        del facts["configuration_payload"]
        _check_name(path, header)
        reader.verify()
        machine = _load(file, path, header)
    except SnapshotDamagedError as error:
        if not tree:
            problem = {"offset": error.offset, "problem": error.message, "remedy": error.remedy}
            show(json.dumps(facts | {"verdict": "damaged"} | problem, indent=2))
        raise
    except SnapshotVersionError as error:
        raise UsageError(error.message, "use the version that wrote it") from error
    finally:
        file.close()
    if not tree:
        show(json.dumps(facts | _describe(machine) | {"verdict": "good"}, indent=2))
        return
    for znode, node in _nodes(machine):
        show(json.dumps(_describe_node(machine, znode, node)))


def _check_name(path: str, header: SnapshotHeader) -> None:
    """Refuse a file whose name says another place in the log; names that no node gives say nothing."""
    found = SNAPSHOT_NAME.fullmatch(path.rpartition("/")[2])
    named = None if found is None else (int(found[1]), int(found[2]))
    if named is not None and named != (header.log_index, header.term):
        problem = f"it is the snapshot of entry {header.log_index} of term {header.term}"
        raise SnapshotDamagedError(path, 0, f"{problem}, not of {named[0]} of term {named[1]}", REMEDY)


def _load(file: File, path: str, header: SnapshotHeader) -> StateMachine:
    """Build the state and compare what is kept twice."""
    try:
        machine, _ = load_machine(SnapshotReader(file), _OVERLAY_BYTES_MAX)
        machine.check_invariants()
    except (*REFUSALS, AssertionError) as error:
        problem = f"its content is refused: {printable(str(error))}"
        raise SnapshotDamagedError(path, 0, problem, REMEDY) from error
    state = (machine.last_stamp_ms, machine.cluster_id, machine.configuration)
    if state != (header.stamp_ms, header.cluster_id, header.configuration_payload):
        problem = "stamp, cluster id or configuration of the state are not those of its header"
        raise SnapshotDamagedError(path, 0, problem, REMEDY)
    return machine


def choose(disk: Disk, path: str) -> str:
    """Return the file that is meant: itself, or the newest one of a snapshots folder or a data directory."""
    folder = path.rstrip("/")
    for candidate in (folder, f"{folder}/snapshots"):
        try:
            names = disk.listdir(candidate)
        except NotADirectoryError:
            return path
        except OSError as error:
            if candidate != folder and isinstance(error, FileNotFoundError):
                continue
            raise UsageError(
                f"{candidate} cannot be read: {error.strerror}",
                "name a snapshot file, or a node's data directory",
            ) from error
        found = [name for name in names if SNAPSHOT_NAME.fullmatch(name)]
        if found:
            return f"{candidate}/{found[-1]}"
    raise UsageError(f"{path} holds no snapshot", "name a snapshot file, or a node's data directory")


def _describe(machine: StateMachine) -> Plain:
    sessions = machine.sessions.values()
    return {
        "zxid": machine.zxid,
        "znodes": machine.tree.node_count,
        "data_bytes": machine.tree.data_bytes,
        "sessions": len(machine.sessions),
        "session_ids_given": machine.session_counter,
        "ephemerals": sum(len(session.ephemerals) for session in sessions),
        "acls": len(machine.tree.acls),
        "feature_level": machine.feature_level,
        "origins": {
            str(node_id): {"origin_incarnation": incarnation, "number": number}
            for node_id, (incarnation, number) in sorted(machine.origins.items())
        },
        "state_digest": machine.state_digest.hex(),
        "apply_digest": machine.apply_digest.hex(),
    }


def _configuration(payload: bytes) -> object:
    try:
        return public_configuration(json.loads(payload))
    except ValueError:
        return None


def _nodes(machine: StateMachine) -> Iterator[tuple[str, Node]]:
    """Yield every znode with its path: parents first, children by name."""
    pending: list[tuple[str, Node]] = [("/", machine.tree.root)]
    while pending:
        path, node = pending.pop()
        yield path, node
        if isinstance(node, Directory):
            prefix = path if path != "/" else ""
            pending += [
                (f"{prefix}/{name}", node.children[name]) for name in sorted(node.children, reverse=True)
            ]


def _describe_node(machine: StateMachine, path: str, node: Node) -> Plain:
    """Describe a znode: its Stat, ACL and data (base64, null where there is none)."""
    record = record_of(node)
    fields = HEADER.unpack(stat_of(node) + record[STAT_BYTES : HEADER.size])
    data = data_of(record)
    return {
        "path": path,
        **dict(zip(_STAT_NAMES, fields, strict=False)),
        "acl": [list(entry) for entry in machine.tree.acls[acl_field_of(record) & ACL_MASK]],
        "data": jsonable(data),
    }
