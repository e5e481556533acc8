"""`quorate members`: shows and changes the members of the cluster, through the admin port of any node."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

from quorum.admin.client import AdminChange, ask, first_listening, get_status
from quorum.cli.commands.status import TIMEOUT_S, add_admin_option, members_table
from quorum.config.address import parse_member_address
from quorum.config.node import NODE_ID_MAX
from quorum.errors import UsageError, printable, shown

HELP = "show, add, replace or remove members"
DESCRIPTION = """\
Show and change the members of the cluster. Any node may be asked; it answers once it has applied the change.

A new node is added first, and then started with `quorate serve --join`. Its [members] name the present nodes
and itself. It is a learner until it has caught up, and votes from then on. A node whose disk is lost is
replaced: its old disk never counts again, and it comes back with an empty data directory and
`quorate serve --join`. A node is stopped after it was removed."""
EXAMPLES = """\
examples:
  quorate members list
  quorate members add 4 10.0.0.4:2281
  quorate members replace 2
  quorate members remove 1 --admin http://10.0.0.3:8181
"""

#: longer than the node's own deadline for the outcome, by default 5 s; where raft.forward_deadline_ms is
#: longer still, the outcome may be reported as unknown before the node knows it
CHANGE_TIMEOUT_S = 30.0
_ANSWER = {"members": list}
_LOOK = "look at the members (`quorate members list`, of any node) before asking again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    shared = argparse.ArgumentParser(add_help=False)
    add_admin_option(shared)
    shared.add_argument("--json", action="store_true", help="print the node's answer as JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    rows: tuple[tuple[str, str, Callable[[argparse.Namespace], int]], ...] = (
        ("list", "show the members", _list),
        ("add", "let a node join", _add),
        ("replace", "retire the lost disk of a member", _replace),
        ("remove", "let a member go", _remove),
    )
    for name, text, act in rows:
        action = actions.add_parser(name, allow_abbrev=False, parents=[shared], help=text, description=text)
        if name != "list":
            action.add_argument("node_id", metavar="ID", help=f"the node's id, 1 to {NODE_ID_MAX}")
        if name == "add":
            action.add_argument("address", metavar="ADDR", help="host:port of the node's peer listener")
        if name == "replace":
            action.add_argument(
                "--incarnation",
                metavar="HEX",
                help="the disk that is lost, so that a repetition retires no other one (default: the one "
                "that is recorded, which must not be in use)",
            )
            action.add_argument(
                "--force",
                action="store_true",
                help="also if the disk is in use (name it with --incarnation), or if a single voter is left",
            )
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    if arguments.action != "list":
        arguments.node_id = _node_id(arguments.node_id)
    if arguments.action == "add":
        arguments.address = _address(arguments.address)
    if arguments.action == "replace" and arguments.incarnation is not None:
        _check_incarnation(arguments.incarnation)
    arguments.admin = first_listening(arguments.admin)
    act: Callable[[argparse.Namespace], int] = arguments.act
    return act(arguments)


def _node_id(given: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,2}", given, re.ASCII) or int(given) > NODE_ID_MAX:
        raise UsageError(
            f"ID = {shown(given)} is no node id", f"give the node.id of the node, 1 to {NODE_ID_MAX}"
        )
    return int(given)


def _address(given: str) -> str:
    try:
        return str(parse_member_address(given))
    except ValueError as error:
        remedy = "give the node's listen.peer as the others reach it, as 10.0.0.4:2281"
        raise UsageError(f"ADDR = {shown(given)} {error}", remedy) from error


def _check_incarnation(given: str) -> None:
    if not re.fullmatch("[0-9a-f]{32}", given, re.ASCII):
        remedy = "give the 32 hex digits that `quorate members list --json` shows, or leave it out"
        raise UsageError(f"--incarnation = {shown(given)} is no incarnation", remedy)


def _list(arguments: argparse.Namespace) -> int:
    answer = get_status(arguments.admin, TIMEOUT_S)
    _print(arguments, {"leader_id": answer.get("leader_id"), "members": answer.get("members") or []}, answer)
    return 0


def _add(arguments: argparse.Namespace) -> int:
    node_id = arguments.node_id
    learner = (
        f"node {node_id} at {arguments.address} is a learner now: start it with "
        "`quorate serve --join`, with the present members and itself in [members]; it votes once it has "
        "caught up"
    )
    voter = (
        f"node {node_id} at {arguments.address} is a voter already, nothing was changed: if its disk is lost "
        f"run `quorate members replace {node_id}`"
    )
    body = {"node_id": node_id, "address": arguments.address}
    request = AdminChange("POST", "/v1/members", _ANSWER, f"add of node {node_id}", _LOOK, body)
    answer = ask(arguments.admin, request, CHANGE_TIMEOUT_S)
    votes = any(member["node_id"] == node_id and member.get("voter") for member in answer["members"])
    return _tell(arguments, answer, voter if votes else learner)


def _replace(arguments: argparse.Namespace) -> int:
    node_id = arguments.node_id
    body: dict[str, object] = {"node_id": node_id, "replace": True}
    if arguments.incarnation is not None:
        body["incarnation"] = arguments.incarnation
    if arguments.force:
        body["force"] = True
    doing, remedy = f"replace of node {node_id}", _how_to_repeat(named="incarnation" in body)
    request = AdminChange("POST", "/v1/members", _ANSWER, doing, remedy, body)
    answer = ask(arguments.admin, request, CHANGE_TIMEOUT_S)
    counts = [member.get("incarnation") for member in answer["members"] if member["node_id"] == node_id]
    # A learner has no recorded disk before it joins; neither has a member whose replacement is repeated.
    retired = f"the recorded disk of node {node_id} never counts again, if there was one"
    if arguments.incarnation:
        retired = f"the disk {arguments.incarnation} never counts again"
    if arguments.incarnation and any(counts):
        # The new disk, if this is a repetition; the one as before, if the named disk was another node's.
        then = f"the disk of node {node_id} that counts has the incarnation {printable(counts[0])}"
    else:
        then = "start the node with an empty data directory and `quorate serve --join`"
    for member in answer["members"]:
        if member["node_id"] == node_id and not arguments.json:
            # Of before; the node has not been heard since.
            member.pop("refusal", None)
    return _tell(arguments, answer, f"{retired}: {then}")


def _how_to_repeat(*, named: bool) -> str:
    """Say how a replacement whose outcome is unknown is asked for again, in other cases than an addition."""
    if named:
        return f"{_LOOK}; a repetition with the same --incarnation retires no other disk"
    return (
        f"{_LOOK}; while `quorate members list --json` shows the incarnation of the lost disk, a repetition "
        "that names it (--incarnation) retires no other"
    )


def _remove(arguments: argparse.Namespace) -> int:
    node_id = arguments.node_id
    path = f"/v1/members?{urlencode({'node_id': node_id})}"
    request = AdminChange("DELETE", path, _ANSWER, f"remove of node {node_id}", _LOOK)
    answer = ask(arguments.admin, request, CHANGE_TIMEOUT_S)
    return _tell(arguments, answer, f"node {node_id} is no member any more: stop it")


def _tell(arguments: argparse.Namespace, answer: dict[str, Any], story: str) -> int:
    if not arguments.json:
        print(story)
    _print(arguments, answer, answer)
    return 0


def _print(arguments: argparse.Namespace, answer: dict[str, Any], members_of: dict[str, Any]) -> None:
    if arguments.json:
        print(json.dumps(answer, sort_keys=True))
        return
    for line in members_table(members_of, urlsplit(arguments.admin).scheme):
        print(line)
