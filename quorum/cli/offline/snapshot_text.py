"""Snapshots as text and JSON: what `quorate snapshot` prints. Decides the words alone.

What clients wrote is shown escaped in text, so that it can neither act on the terminal nor begin a line; JSON
has it as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from quorum.cli.offline.entries import stamp_text
from quorum.cli.offline.snapshot import Inspection, describe, describe_node, inspect, nodes
from quorum.core.machine import StateMachine
from quorum.core.records import data_of
from quorum.core.tree import record_of
from quorum.errors import UsageError, printable
from quorum.platform.runtime import Disk
from quorum.platform.terminal import styled


def inspection_lines(disk: Disk, path: str, *, znode: str | None, tree: bool, as_json: bool) -> Iterator[str]:
    """Yield what a snapshot holds; of a damaged one what can still be read.

    Args:
        disk: for reading.
        path: the file.
        znode: show this one instead of the facts.
        tree: list all znodes instead of the facts.
        as_json: JSON instead of text; of a tree one object a line.

    Raises:
        UsageError: there is no such znode, or another version wrote the file.
        SnapshotDamagedError: what is damaged; behind the last line.
        OSError: the file cannot be opened.
    """
    found = inspect(disk, path)
    if found.machine is not None and tree:
        yield from _tree(found.machine, as_json=as_json)
    elif found.machine is not None and znode is not None:
        yield from _znode(found.machine, znode, as_json=as_json)
    elif as_json:
        yield json.dumps(describe(found), sort_keys=True)
    else:
        yield from _facts(found)
    if found.problem is not None:
        raise found.problem


def _facts(found: Inspection) -> Iterator[str]:
    facts = describe(found)
    if "stamp_ms" in facts:
        facts["stamp"] = stamp_text(int(str(facts.pop("stamp_ms"))))
    if "zxid" in facts:
        facts["zxid"] = f"0x{facts['zxid']:x}"
    verdict = str(facts.pop("verdict"))
    for name in ("offset", "problem", "remedy"):
        facts.pop(name, None)
    configuration = facts.pop("configuration", None)
    origins = facts.pop("origins", None)
    for name, value in facts.items():
        yield _line(name, str(value))
    if isinstance(configuration, dict):
        for role in ("voters", "learners"):
            members = configuration.get(role)
            for node_id, member in members.items() if isinstance(members, dict) else ():
                yield _line(role[:-1], f"{node_id} {_member(member)}")
    if isinstance(origins, dict):
        for node_id, origin in origins.items():
            told = f"node {node_id}, incarnation {origin['origin_incarnation']}, batch {origin['number']}"
            yield _line("origin", told)
    yield styled(verdict, "green" if verdict == "good" else "red", sys.stdout)


def _line(name: str, told: str) -> str:
    return f"{styled(name.ljust(18), 'bold', sys.stdout)}{printable(told)}"


def _member(member: object) -> str:
    if not isinstance(member, dict):
        return str(member)
    return f"{member.get('address')} incarnation {member.get('incarnation') or 'not recorded yet'}"


def _tree(machine: StateMachine, *, as_json: bool) -> Iterator[str]:
    for path, node in nodes(machine):
        described = describe_node(machine, path, node)
        if as_json:
            yield json.dumps(described)
            continue
        owner = described["ephemeral_owner"]
        owned = f" ephemeral of 0x{owner:x}" if owner else ""
        yield f"{printable(path)} bytes={described['data_length']} version={described['version']}{owned}"


def _znode(machine: StateMachine, path: str, *, as_json: bool) -> Iterator[str]:
    node = machine.tree.get(path)
    if node is None or not path.startswith("/"):
        raise UsageError(f"the snapshot has no znode {path!r}", "list them with --tree")
    described = describe_node(machine, path, node)
    if as_json:
        yield json.dumps(described)
        return
    data = data_of(record_of(node))
    described["data"] = data if data is None else repr(data)[1:]
    for name, value in described.items():
        yield _line(name, str(value))
