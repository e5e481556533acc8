"""What `/zookeeper/config` says about a configuration: a line per member and the version.

The configuration itself belongs to Raft; here it is an opaque JSON payload of which only the members' ids and
addresses are read. What is malformed is left out, because an entry that is in the log must be applied. Pure,
no state.
Source: ZooKeeper administrator's guide 3.9 (dynamic configuration).
"""

from __future__ import annotations

import json
import re
from typing import Final

_NODE_ID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


def _addresses(members: object) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if isinstance(members, dict):
        for node_id, member in members.items():
            address = member.get("address") if isinstance(member, dict) else None
            if isinstance(address, str) and ":" in address and _NODE_ID.fullmatch(node_id):
                found.append((int(node_id), address))
    return found


def _lines(members: object, role: str) -> list[tuple[int, str]]:
    return [(node_id, f"server.{node_id}={address}:0:{role}\n") for node_id, address in _addresses(members)]


def describe_members(configuration: bytes, zxid: int) -> bytes:
    """Render a configuration for `/zookeeper/config`.

    Args:
        configuration: JSON with `voters` and `learners`, {id: {"address": "host:port"}}.
        zxid: the transaction that made it valid.

    Returns:
        A line `server.<id>=<host>:<port>:0:participant` (or observer) per member, then `version=<hex zxid>`.
        The 0 takes the place of ZooKeeper's election port: there is none here, and its Java client refuses
        to read a line with the same port in both places.
    """
    try:
        parsed: object = json.loads(configuration)
    except (ValueError, RecursionError):
        parsed = None
    lines: list[tuple[int, str]] = []
    if isinstance(parsed, dict):
        lines = _lines(parsed.get("voters"), "participant") + _lines(parsed.get("learners"), "observer")
    return ("".join(line for _, line in sorted(lines)) + f"version={zxid:x}").encode()


def members_of(configuration: bytes) -> dict[int, tuple[str, bool]]:
    """Return {node id: (address, whether it votes)}; what is malformed is left out."""
    try:
        parsed: object = json.loads(configuration)
    except (ValueError, RecursionError):
        return {}
    members: dict[int, tuple[str, bool]] = {}
    if isinstance(parsed, dict):
        for role, votes in (("learners", False), ("voters", True)):
            members |= {node_id: (address, votes) for node_id, address in _addresses(parsed.get(role))}
    return members


def cluster_id_of(configuration: bytes) -> str:
    """Return the cluster id of a configuration; "" where it names none."""
    try:
        parsed: object = json.loads(configuration)
    except (ValueError, RecursionError):
        return ""
    found = parsed.get("cluster_id") if isinstance(parsed, dict) else None
    return found if isinstance(found, str) else ""


def described_version(description: bytes) -> int:
    """Read the zxid that a description says it is valid from; 0 where it says none."""
    digits = description.rpartition(b"version=")[2]
    try:
        return int(digits, 16)
    except ValueError:
        return 0


def same_members(description: bytes, other: bytes) -> bool:
    """Tell whether two descriptions name the same members; their versions do not count."""
    return description.rpartition(b"version=")[0] == other.rpartition(b"version=")[0]
