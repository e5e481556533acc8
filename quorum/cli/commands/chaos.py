"""`quorate chaos`: faults on the links of a cluster that `quorate up --chaos` started, to play with.

A process is named 1 (node 1), b1 (broker 1), leader or controller. Faults add up until `heal`. Decides which
links a fault lies on; what happens then is the cluster's.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorum.admin.client import get
from quorum.errors import QuorateError, UnreachableError, UsageError, shown
from quorum.launcher.chaos import ChaosRecord, driver, read_record
from quorum.platform.terminal import table

HELP = "cut, slow down and heal links of a cluster that runs behind proxies"
DESCRIPTION = """\
Play with the links of a cluster that was started by `quorate up --chaos`. Processes are named 1 (node 1),
b1 (broker 1), leader (of the quorum) or controller (its broker). Faults add up until they are healed."""
EXAMPLES = """\
examples:
  quorate chaos list
  quorate chaos isolate leader             no other process hears it; clients still reach it
  quorate chaos partition 1,2:3            nodes 1 and 2 on one side, node 3 on the other
  quorate chaos partition b1:1,2,3         broker 1 without the quorum
  quorate chaos slow 2 --latency 200ms
  quorate chaos heal
"""
TIMEOUT_S = 2.0
_BOTH: Final = ("upstream", "downstream")
_LINK: Final = re.compile(r"(peer|broker|quorum|client)-(b?\d+)(?:-(\d+))?")


class Ends(NamedTuple):
    """Whom a link joins; dialler "" is the clients."""

    dialler: str
    dialled: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, told in (
        ("list", "show every link and what lies on it"),
        ("isolate", "let nothing pass between a process and all other processes"),
        ("partition", "let nothing pass between two sides"),
        ("slow", "delay what a process sends and receives"),
        ("heal", "take all faults away"),
    ):
        action = actions.add_parser(name, help=told, description=told)
        if name in ("isolate", "slow"):
            action.add_argument("process", help="1, b1, leader or controller")
        if name == "partition":
            action.add_argument("sides", help="as 1,2:3 or b1:1,2,3")
        if name == "slow":
            action.add_argument(
                "--latency", default="200ms", metavar="TIME", help="as 200ms (the default) or 1s"
            )
        where = "as given to `quorate up` (default: ./data)"
        action.add_argument("--data-dir", type=Path, default=Path("data"), metavar="DIR", help=where)


def run(arguments: argparse.Namespace) -> int:
    """Do one action.

    Raises:
        DataDirError: no cluster behind proxies runs there.
        UsageError: a process or time that does not exist.
        UnreachableError: toxiproxy does not answer.
    """
    record = read_record(arguments.data_dir.absolute())
    toxiproxy = driver(record)
    if not toxiproxy.running():
        remedy = f"start it with quorate up --chaos --data-dir {arguments.data_dir}"
        raise UnreachableError(f"toxiproxy does not answer on {record.api}", remedy)
    proxies = toxiproxy.proxies()
    if arguments.action == "list":
        for line in describe(record, {name: sorted(proxy.toxics()) for name, proxy in proxies.items()}):
            print(line)
    elif arguments.action == "heal":
        for proxy in proxies.values():
            for toxic in proxy.toxics():
                proxy.destroy_toxic(toxic)
        print("healed")
    elif arguments.action == "slow":
        latency_ms = read_time_ms(arguments.latency)
        process = find_process(record, arguments.process)
        names = [name for name in record.links if process in ends(name)]
        _add(proxies, names, "latency", {"latency": latency_ms})
        print(f"{process} is slow by {latency_ms} ms a direction, on {len(names)} links")
    else:
        if arguments.action == "isolate":
            one = {find_process(record, arguments.process)}
            sides = (one, {*record.admins} - one)
        else:
            sides = read_sides(record, arguments.sides)
        names = between(record.links, *sides)
        _add(proxies, names, "timeout", {"timeout": 0})
        left, right = (" ".join(sorted(side)) for side in sides)
        print(f"{left} | {right}: nothing passes {len(names)} links")
    return 0


def _add(proxies: Mapping[str, Any], names: Iterable[str], kind: str, attributes: dict[str, int]) -> None:
    for name in names:
        present = proxies[name].toxics()
        for stream in _BOTH:
            toxic = f"{kind}-{stream}"
            if toxic in present:
                proxies[name].destroy_toxic(toxic)
            proxies[name].add_toxic(type=kind, name=toxic, stream=stream, attributes=attributes)


def ends(name: str) -> Ends:
    """Read the name of a link."""
    match = _LINK.fullmatch(name)
    assert match is not None, name
    kind, first, second = match.groups()
    if kind == "client":
        return Ends("", first)
    return Ends(f"b{first}", f"b{second}") if kind == "broker" else Ends(first, second)


def between(links: Iterable[str], left: set[str], right: set[str]) -> list[str]:
    """Links that join two sides, in either direction."""
    return [
        name
        for name in links
        for dialler, dialled in (ends(name),)
        if (dialler in left and dialled in right) or (dialler in right and dialled in left)
    ]


def read_sides(record: ChaosRecord, text: str) -> tuple[set[str], set[str]]:
    """Read two sides, as 1,2:3.

    Raises:
        UsageError: they are not two, or share a process.
    """
    sides = [{find_process(record, name) for name in side.split(",")} for side in text.split(":")]
    if len(sides) != 2 or sides[0] & sides[1]:
        problem = f"{shown(text)} is not two sides without a common process"
        raise UsageError(problem, "write 1,2:3 or b1:1,2,3")
    return sides[0], sides[1]


def read_time_ms(text: str) -> int:
    """Read a time, as 200ms or 1.5s.

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s)", text, re.ASCII)
    if match is None:
        raise UsageError(f"--latency {shown(text)} is no time", "write 200ms or 1.5s")
    return round(float(match[1]) * (1000 if match[2] == "s" else 1))


def find_process(record: ChaosRecord, name: str) -> str:
    """Return the mark of a process.

    Raises:
        UsageError: there is none, or nobody leads now.
    """
    if name in record.admins:
        return name
    if name not in ("leader", "controller"):
        remedy = f"use {', '.join(record.admins)}, leader, controller"
        raise UsageError(f"there is no process {shown(name)}", remedy)
    found = _leader(record) if name == "leader" else _controller(record)
    if found is None:
        raise UsageError(f"there is no {name} now", "wait until there is one, or name a process")
    return found


def _statuses(record: ChaosRecord, *, brokers: bool) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, url in record.admins.items():
        if name.startswith("b") == brokers:
            try:
                code, body = get(url, "/v1/status", TIMEOUT_S)
                status = json.loads(body)
            except (QuorateError, ValueError):
                continue  # it may be dead or frozen: the others are asked
            if code == 200 and isinstance(status, dict):
                yield name, status


def _leader(record: ChaosRecord) -> str | None:
    """The node that says that it leads, in the highest term."""
    leading = [
        (each.get("term", 0), name)
        for name, each in _statuses(record, brokers=False)
        if each.get("role") == "leader"
    ]
    return max(leading)[1] if leading else None


def _controller(record: ChaosRecord) -> str | None:
    """The broker that most lately became the controller, by what brokers say of themselves."""
    claims = [
        (each.get("controller_epoch") or 0, name)
        for name, each in _statuses(record, brokers=True)
        if f"b{each.get('controller_id')}" == name
    ]
    return max(claims)[1] if claims else None


def describe(record: ChaosRecord, toxics: Mapping[str, Iterable[str]]) -> list[str]:
    """Lay out links for a person."""
    rows = []
    for name, link in record.links.items():
        dialler, dialled = ends(name)
        faults = " ".join(toxics.get(name, ())) or "-"
        rows.append([name, dialler or "clients", dialled, link.listen, link.upstream, faults])
    return table(["LINK", "FROM", "TO", "PROXY", "BEHIND IT", "FAULTS"], rows)
