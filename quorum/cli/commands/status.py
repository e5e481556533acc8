"""`quorate status`: shows what one node knows of the quorum, and the brokers on top, as text or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from quorum.admin.client import first_listening, get_status
from quorum.cli.commands.control_plane import describe_control_plane, read_control_plane
from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.errors import printable
from quorum.platform.terminal import styled, table
from quorum.platform.tls import DIALLING

HELP = "show members, roles, term and progress, controller and brokers"
DESCRIPTION = """\
Ask the admin port of one node for the state of the quorum as that node sees it. Where brokers are registered,
the controller's broker is asked for partitions that are offline or under-replicated."""
EXAMPLES = """\
examples:
  quorate status
  quorate status --admin http://127.0.0.1:8182
  quorate status --json | python3 -m json.tool

MATCH and LAG of the members are known to the leader alone; asked of another node, the last line names it.
"""

#: what an option `--admin` that is not given stands for
DEFAULT_ADMIN = "8181 to 8183 of 127.0.0.1"
TIMEOUT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    add_admin_option(parser)
    add_sasl_options(parser)
    parser.add_argument("--json", action="store_true", help="print the node's answer as JSON")


def add_admin_option(parser: argparse.ArgumentParser) -> None:
    """Declare `--admin`, as all commands have it that ask the `first_listening` of it."""
    about = f"admin port of a node; of several the first that is reached (default: {DEFAULT_ADMIN})"
    parser.add_argument("--admin", metavar="URL,…", default=",".join(DEFAULT_ADMIN_URLS), help=about)
    add_tls_options(parser)


def add_admin_ports_option(
    parser: argparse.ArgumentParser, about: str = "admin ports of nodes", default: str = DEFAULT_ADMIN
) -> None:
    """Declare `--admin`, as all commands have it that ask several nodes; "" stands for the default."""
    parser.add_argument("--admin", metavar="URL,…", default="", help=f"{about} (default: {default})")


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Declare `--ca`, `--cert` and `--key`, as all commands have them that dial (quorum.cli.main)."""
    for option, about in (
        ("--ca", "dial by TLS: who signs servers, PEM"),
        ("--cert", "this client's certificate, PEM"),
        ("--key", "the certificate's key, PEM, mode 0600"),
    ):
        parser.add_argument(option, metavar="FILE", type=Path, help=about)


def add_sasl_options(parser: argparse.ArgumentParser) -> None:
    """Declare `--sasl` and `--password-file`, as all commands have them that dial nodes as clients."""
    parser.add_argument("--sasl", metavar="NAME", help="prove to nodes to be this user, by DIGEST-MD5")
    about = "the user's password, alone in the file, mode 0600"
    parser.add_argument("--password-file", metavar="FILE", type=Path, help=about)


def add_kafka_sasl_options(parser: argparse.ArgumentParser) -> None:
    """Declare `--sasl`, `--password-file` and `--mechanism`, as all commands have them that dial brokers."""
    about = "prove to brokers to be this user, on their SASL listeners"
    parser.add_argument("--sasl", dest="kafka_sasl", metavar="NAME", help=about)
    parser.add_argument(
        "--password-file",
        dest="kafka_password_file",
        metavar="FILE",
        type=Path,
        help="the user's password, alone in the file, mode 0600",
    )
    parser.add_argument(
        "--mechanism",
        dest="kafka_mechanism",
        default="SCRAM-SHA-256",
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        help="by which it is proved (default: SCRAM-SHA-256)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    arguments.admin = first_listening(arguments.admin)
    answer = get_status(arguments.admin, TIMEOUT_S)
    hosts = _client_port(arguments.admin, answer)
    control_plane = None if hosts is None else read_control_plane(hosts, TIMEOUT_S)
    if control_plane is not None:
        answer["control_plane"] = control_plane
    if arguments.json:
        print(json.dumps(answer, sort_keys=True))
        return 0
    for line in describe(answer, urlsplit(arguments.admin).scheme):
        print(line)
    if control_plane is not None:
        print("\n".join(["", *describe_control_plane(control_plane)]))
    return 0


def _client_port(admin: str, answer: dict[str, Any]) -> str | None:
    """Return the client port of the asked node, at the host that its admin port was reached at."""
    port = answer.get("client_port" if DIALLING.get() is None else "secure_client_port")
    host = urlsplit(admin).hostname
    if not isinstance(port, int) or host is None:
        return None
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def describe(answer: dict[str, Any], scheme: str) -> list[str]:
    """Lay out a status answer for a person.

    Args:
        answer: the object of /v1/status.
        scheme: http or https, by which the node was asked.
    """
    leader_id = answer.get("leader_id")
    commit_index = answer.get("commit_index")
    facts = {
        "cluster": f"{answer.get('cluster')} ({answer.get('cluster_id') or 'no cluster id yet'})",
        "asked": f"node {answer.get('node_id')}, {answer.get('role')}",
        "leader": "none known" if leader_id is None else f"node {leader_id}",
        "term": answer.get("term"),
        "commit": f"{commit_index} (applied {answer.get('applied_index')})",
        "zxid": answer.get("zxid"),
        "sessions": answer.get("sessions"),
        "digest": answer.get("state_digest"),
    }
    if answer.get("problem"):
        facts["problem"] = answer["problem"]
    lines = [
        f"{styled(name.ljust(9), 'bold', sys.stdout)}{printable(str(value))}" for name, value in facts.items()
    ]
    return [*lines, "", *members_table(answer, scheme)]


def members_table(answer: dict[str, Any], scheme: str) -> list[str]:
    """Lay out the members of an answer, with a header.

    Args:
        answer: the object of /v1/status, or of a change of members, as adminclient returns it.
        scheme: http or https, by which the node was asked.
    """
    members = sorted(answer.get("members") or [], key=lambda member: int(member["node_id"]))
    rows = [
        [
            member["node_id"],
            _cell(member.get("address")),
            _cell(member.get("role")),
            "yes" if member.get("voter", True) else "no",
            member.get("match_index"),
            _lag(member, answer),
        ]
        for member in members
    ]
    header, *body = table(["NODE", "ADDRESS", "ROLE", "VOTES", "MATCH", "LAG"], rows)
    refused = [
        f"node {member['node_id']} is refused: {printable(member['refusal'])}"
        for member in members
        if member.get("refusal")
    ]
    return [styled(header, "bold", sys.stdout), *body, *refused, *_where_lag_is_known(members, scheme)]


def _cell(text: str | None) -> str | None:
    """Return a text of the answer, parts of which other processes said, for a table."""
    return None if text is None else printable(text)


def _where_lag_is_known(members: list[dict[str, Any]], scheme: str) -> list[str]:
    """Say whom to ask for MATCH and LAG, where the asked node does not lead."""
    if any(member.get("match_index") is not None for member in members):
        return []
    leader = next((member for member in members if member.get("role") == "leader"), None)
    if leader is None:
        return ["MATCH and LAG are known to a leader alone, and the asked node knows none"]
    # The address is that of the peer port; a node does not know the admin port of another one.
    host = printable(str(leader.get("address"))).rpartition(":")[0]
    url = f"{scheme}://{host}:PORT"
    ask = f"ask node {leader['node_id']} with --admin {url}, the listen.admin of its node.toml"
    return [f"MATCH and LAG are known to the leader alone: {ask}"]


def _lag(member: dict[str, Any], answer: dict[str, Any]) -> int | None:
    """Committed entries that a member has not acknowledged yet; None where the asked node does not know."""
    match_index, commit_index = member.get("match_index"), answer.get("commit_index")
    if match_index is None or commit_index is None:
        return None
    return max(0, int(commit_index) - int(match_index))
