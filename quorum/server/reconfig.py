"""ZooKeeper's reconfig, as a change of one member.

Decides what a request asks for and which of ZooKeeper's refusals it gets, in ZooKeeper's order: version,
arguments, access list. One request may let one node join or go, because the log changes one member at a time;
what a request leaves as it is does not count. Where nothing is left to change the leader has to confirm that:
this node may lag. Reads the state and changes nothing; whether the change can be made is the leader's to say.

Source: PrepRequestProcessor (reconfig) and QuorumPeer.QuorumServer of ZooKeeper 3.9; its administrator's
guide, "Dynamic reconfiguration".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from quorum.config.address import parse_member_address
from quorum.core.codes import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    MARSHALLING_ERROR,
    NEW_CONFIG_NO_QUORUM,
    NO_AUTH,
    OK,
    RECONFIG_IN_PROGRESS,
)
from quorum.core.machine import CONFIG_PATH, StateMachine
from quorum.core.members import members_of
from quorum.core.queries import config_version, may_write
from quorum.errors import NoLeaderError, QuorateError, StaleConfigurationError, UnknownMemberError
from quorum.server.replica_view import ReplicaView
from quorum.wire.requests import Reconfig

NODE_ID_MAX: Final = 255
ANY_VERSION: Final = -1
#: of the three texts together: far more than all servers that there can be
TEXTS_CHARS_MAX: Final = 64 * 1024
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
#: host:port:port[:role];[client host:]client port
_SERVER: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+):(?P<port>[0-9]{1,5}):(?P<election>[0-9]{1,5})(:(?P<role>\w+))?"
    r";((\[[0-9A-Fa-f:.]+\]|[\w.-]+):)?(?P<client>[0-9]{1,5})",
    re.ASCII,
)
_SERVER_KEY: Final = "server."
ADDRESS_CHARS_MAX: Final = 300


class MemberChange(NamedTuple):
    """What a request asks for."""

    node_id: int
    #: host:port of the peer listener of a node that joins; None: the node goes
    address: str | None
    #: the version of /zookeeper/config that it is meant for; None: any
    config_version: int | None


def begin_change(
    replica: ReplicaView, identities: object, request: Reconfig, done: Callable[[int | None], None]
) -> None:
    """Begin what a request asks for, or refuse it.

    Args:
        replica: the node.
        identities: what the client has proven.
        request: as it came.
        done: called once, perhaps before this returns, with the code of the answer, or None if the outcome is
            not known or no leader was there to ask: then the connection has to end.
    """
    change = plan(replica.machine, request, identities)
    if isinstance(change, int):
        done(change)
        return

    def answer(error: QuorateError | None) -> None:
        if error is None:
            done(OK)
        elif _lagged(error, request):
            done(RECONFIG_IN_PROGRESS)
        elif error.definite and not isinstance(error, NoLeaderError):
            done(error.code or NEW_CONFIG_NO_QUORUM)
        else:
            done(None)

    replica.change_member(*change, answer)


def _lagged(error: QuorateError, request: Reconfig) -> bool:
    """Tell whether the leader refused because this node had other members; another try may succeed."""
    any_version = request.config_version == ANY_VERSION
    return isinstance(error, UnknownMemberError) or (
        any_version and isinstance(error, StaleConfigurationError)
    )


class _RefusedError(Exception):
    """The arguments mean nothing; carries ZooKeeper's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def plan(machine: StateMachine, request: Reconfig, identities: object) -> MemberChange | int:
    """Return what a request asks for, or ZooKeeper's error code.

    If the members are so already, that is to let one of them join that is there, for just this configuration.

    Args:
        machine: the state as this node has it.
        request: as it came.
        identities: what the client has proven, [[scheme, id], …] or None.
    """
    version = None if request.config_version == ANY_VERSION else request.config_version
    if version is not None and version != config_version(machine):
        return BAD_VERSION
    members = members_of(machine.configuration)
    present = {node_id: address for node_id, (address, _) in members.items()}
    try:
        wanted = _wanted(present, request)
        change = _difference(present, wanted)
    except _RefusedError as error:
        return error.code
    if not any(node_id not in members or members[node_id][1] for node_id in wanted):
        return BAD_ARGUMENTS
    if not may_write(machine, CONFIG_PATH, identities):
        return NO_AUTH
    if change is None:
        present_id = min(wanted)
        return MemberChange(present_id, wanted[present_id], config_version(machine))
    return MemberChange(*change, version)


def _difference(present: dict[int, str], wanted: dict[int, str]) -> tuple[int, str | None] | None:
    """Return the one member that joins or goes; None if there is none."""
    joining = {node_id: address for node_id, address in wanted.items() if node_id not in present}
    leaving = present.keys() - wanted.keys()
    moved = [node_id for node_id, address in wanted.items() if present.get(node_id, address) != address]
    if moved or len(joining) + len(leaving) > 1:
        raise _RefusedError(BAD_ARGUMENTS)
    for node_id, address in joining.items():
        if address in present.values():
            raise _RefusedError(BAD_ARGUMENTS)
        return node_id, address
    for node_id in leaving:
        return node_id, None
    return None


def _wanted(present: dict[int, str], request: Reconfig) -> dict[int, str]:
    """Return {node id: address} as the request would have it."""
    texts = request.new_members, request.leaving, request.joining
    if sum(len(text or "") for text in texts) > TEXTS_CHARS_MAX:
        raise _RefusedError(BAD_ARGUMENTS)
    if request.new_members is not None:
        wanted: dict[int, str] = {}
        for line in _pieces(request.new_members.replace(",", "\n"), "\n"):
            if not line.startswith(_SERVER_KEY):
                raise _RefusedError(BAD_ARGUMENTS)
            node_id, address = _server(line)
            wanted[node_id] = address
        return wanted
    wanted = dict(present)
    for text in _pieces(request.leaving or "", ","):
        wanted.pop(_node_id(text), None)
    for text in _pieces(request.joining or "", ","):
        node_id, address = _server(text)
        wanted[node_id] = address
    return wanted


def _pieces(text: str, separator: str) -> list[str]:
    return [piece for piece in map(str.strip, text.split(separator)) if piece]


def _node_id(text: str) -> int:
    # What Java cannot parse escapes ZooKeeper's own checks: it is answered as an undecodable request.
    if not _NUMBER.fullmatch(text):
        raise _RefusedError(MARSHALLING_ERROR)
    return int(text)


def _server(text: str) -> tuple[int, str]:
    """Read "server.<id>=<address>"; all three ports must be given, as in ZooKeeper."""
    parts = _pieces(text, "=")
    if len(parts) != 2:
        raise _RefusedError(BAD_ARGUMENTS)
    node_id = _node_id(parts[0].rpartition(".")[2])
    found = _SERVER.fullmatch(parts[1])
    if found is None or not 1 <= node_id <= NODE_ID_MAX or len(parts[1]) > ADDRESS_CHARS_MAX:
        raise _RefusedError(BAD_ARGUMENTS)
    ports = [int(found[name]) for name in ("port", "election", "client")]
    if not all(1 <= port <= 65535 for port in ports) or (found["role"] or "participant") != "participant":
        # Learners become voters by themselves: there are no lasting observers.
        raise _RefusedError(BAD_ARGUMENTS)
    address = f"{found['host']}:{found['port']}"
    try:
        return node_id, str(parse_member_address(address))
    except ValueError:
        raise _RefusedError(BAD_ARGUMENTS) from None
