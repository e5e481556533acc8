"""What `quorate up` keeps in its data directory, and which processes run there.

    DIR/lock               held while a supervisor runs; says which process that is
    DIR/up.log             the supervisor's news since it is detached
    DIR/up.json            how many nodes and brokers there are, their first ports, and whether a node was
                           ever ready; written before anything else
    DIR/peer.secret        what nodes and brokers prove to each other, mode 0600
    DIR/node-I/, broker-I/ node.toml or broker.toml (written anew, without comments, when an address changes;
                           what a person added stays), its log (….log.1: the part before), and data/

Decides counts and ports, and that a directory that had a cluster founds no other one where the data of all
its nodes are gone. Does not know what a node's data mean. Hard state: the files above.
"""

from __future__ import annotations

import json
import secrets
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from quorum.errors import AddressInUseError, DataDirError, UsageError, remedy_for_os, told_by_os
from quorum.launcher.child import HOST, Child
from quorum.launcher.files import user_of, write_file
from quorum.platform.os_runtime import OsDisk

Sections = dict[str, dict[str, object]]
COUNT_MAX = 9
DEFAULT_NODES = 3
DEFAULT_BROKERS = 3
#: what decides over ports → the port of the first process; the next ones have the next ports
DEFAULT_PORTS = {"client": 2181, "peer": 2281, "admin": 8181, "broker": 9092, "console": 8080}
#: key of a broker's [listen] → how far its port is above that for brokers
_BROKER_PORTS = {"client": 0, "broker": 100, "admin": 200}
_HOW_TO_RECORD = (
    'put it back, as {"nodes": 3} for three nodes; or name another --data-dir: a new quorum begins there'
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One data directory: what its up.json says, and the processes to run, nodes first, in order of ids."""

    data_dir: Path
    node_count: int
    #: the most that there ever were
    broker_count: int
    #: as DEFAULT_PORTS
    ports: Mapping[str, int]
    #: a node was ready: there is a cluster, whatever has become of its data since
    founded: bool
    children: tuple[Child, ...] = ()

    @property
    def nodes(self) -> tuple[Child, ...]:
        """Its nodes."""
        return tuple(child for child in self.children if child.kind == "node")

    @property
    def log_file(self) -> Path:
        """Where a detached supervisor writes its news."""
        return self.data_dir / "up.log"


def plan(data_dir: Path, nodes: int | None, brokers: int | None, ports: Mapping[str, int | None]) -> Layout:
    """Decide which processes run in a data directory and on which ports; writes nothing.

    Args:
        data_dir: may be missing.
        nodes: how many, 1 to COUNT_MAX; None: as many as there are, else DEFAULT_NODES.
        brokers: how many, 0 to COUNT_MAX; None: as many as there are, else DEFAULT_BROKERS. Where there are
            more, only the others do not run this time: the record keeps them.
        ports: keys of DEFAULT_PORTS → first port; None or missing: as it was, else the default.
    """
    for option, count, least in (("--nodes", nodes, 1), ("--brokers", brokers, 0)):
        if count is not None and not least <= count <= COUNT_MAX:
            remedy = f"give {least} to {COUNT_MAX}; 3 survive the loss of one"
            raise UsageError(f"{option} {count} is out of range", remedy)
    known = _read_record(data_dir)
    if known is None:
        first_brokers = DEFAULT_BROKERS if brokers is None else brokers
        known = Layout(data_dir, nodes or DEFAULT_NODES, first_brokers, DEFAULT_PORTS, founded=False)
    elif nodes not in (None, known.node_count):
        raise DataDirError(
            f"--nodes {nodes}: {data_dir} is of a quorum of {known.node_count}",
            f"leave --nodes out to resume that one, or name another --data-dir for {nodes}",
        )
    running = known.broker_count if brokers is None else brokers
    first = {**known.ports, **{key: port for key, port in ports.items() if port is not None}}
    layout = replace(known, broker_count=max(known.broker_count, running), ports=first)
    children = (*_nodes(layout), *_brokers(layout, running))
    _check_ports(children)
    if not 0 <= (console := first["console"]) <= 65535:
        raise UsageError(f"--console-port {console} is out of range", "give 1 to 65535, or 0 for no console")
    return replace(layout, children=children)


def _nodes(layout: Layout) -> list[Child]:
    numbers = range(1, layout.node_count + 1)
    members = {str(number): f"{HOST}:{layout.ports['peer'] + number - 1}" for number in numbers}
    return [
        _child(
            *(layout, "node", number),
            {key: layout.ports[key] + number - 1 for key in ("client", "peer", "admin")},
            {"node": {"id": number, "cluster": "local", "data_dir": "data"}, "members": {**members}},
        )
        for number in numbers
    ]


def _brokers(layout: Layout, running: int) -> list[Child]:
    hosts = [f"{HOST}:{layout.ports['client'] + number}" for number in range(layout.node_count)]
    return [
        _child(
            *(layout, "broker", number),
            {key: layout.ports["broker"] + above + number - 1 for key, above in _BROKER_PORTS.items()},
            {"broker": {"id": number, "data_dir": "data"}, "quorum": {"hosts": hosts}},
        )
        for number in range(1, running + 1)
    ]


def _child(layout: Layout, kind: str, number: int, ports: dict[str, int], own: Sections) -> Child:
    listen = {"listen": {key: f"{HOST}:{port}" for key, port in ports.items()}}
    settings = own | listen | {"security": {"peer_secret_file": "../peer.secret"}}
    return Child(kind, number, layout.data_dir / f"{kind}-{number}", ports, settings)


def _decider(child: Child, key: str) -> str:
    """The key of DEFAULT_PORTS that decides over a port of a process."""
    return key if child.kind == "node" else child.kind


def _check_ports(children: tuple[Child, ...]) -> None:
    seen: dict[int, str] = {}
    for child in children:
        for key, port in child.ports.items():
            mine, option = f"the {key} port of {child.name}", f"--{_decider(child, key)}-port"
            if not 1 <= port <= 65535:
                raise UsageError(f"{option} leads to {port} as {mine}", "give ports from 1 to 65535")
            if port in seen:
                problem = f"port {port} is wanted twice: as {seen[port]} and as {mine}"
                raise UsageError(problem, f"give another {option}")
            seen[port] = mine


def _read_record(data_dir: Path) -> Layout | None:
    """Read up.json; None before the directory's first start. What it does not name is as by default, and
    founded.
    """
    path = data_dir / "up.json"
    there = next(data_dir.glob("node-[1-9]"), None)
    if there is None and not path.exists():
        return None
    try:
        fields = json.loads(path.read_bytes())
        nodes, brokers = int(fields["nodes"]), int(fields.get("brokers", DEFAULT_BROKERS))
        ports = DEFAULT_PORTS | {key: int(port) for key, port in fields.get("ports", {}).items()}
        if not (1 <= nodes <= COUNT_MAX and 0 <= brokers <= COUNT_MAX):
            raise ValueError(f"nodes = {nodes}, brokers = {brokers}: out of range")
    except FileNotFoundError as error:
        problem = f"{path} is missing, but there is {there}: how many nodes there are is not known"
        raise DataDirError(problem, _HOW_TO_RECORD) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataDirError(f"{path} cannot be read: {error}", _HOW_TO_RECORD) from error
    return Layout(data_dir, nodes, brokers, ports, bool(fields.get("founded", True)))


def _write_record(layout: Layout) -> None:
    fields = {"nodes": layout.node_count, "brokers": layout.broker_count, "ports": layout.ports}
    content = json.dumps(fields | {"founded": layout.founded}) + "\n"
    path = layout.data_dir / "up.json"
    if not path.exists() or path.read_text() != content:
        write_file(path, content)


def check_ports_free(layout: Layout) -> None:
    """See that every port can be bound, before anything is started."""
    taken: list[str] = []
    options: dict[str, int] = {}
    for child in layout.children:
        for key, port in child.ports.items():
            with socket.socket() as probe:
                # as the process itself will bind: connections of an earlier life in TIME_WAIT do not count
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    taken.append(f"port {port}, which {child.name} needs as {key} port ({error.strerror})")
                    first = layout.ports[_decider(child, key)]
                    options[f"--{_decider(child, key)}-port"] = first + COUNT_MAX + 1
    if not taken:
        return
    users = {child.name: user_of(child.data_dir) for child in layout.children}
    still = ", ".join(f"{name} (process {pid})" for name, pid in users.items() if pid is not None)
    flags = " ".join(f"{option} {port}" for option, port in options.items())
    problem = f"cannot listen on {HOST}: {'; '.join(taken)}"
    remedy = f'stop what listens there, or choose others, as quorate up {flags} (or make up ARGS="{flags}")'
    if still:
        problem += f"; of an earlier `quorate up` there still runs {still}"
        remedy = f"quorate down --data-dir {layout.data_dir} waits until nothing runs there"
    raise AddressInUseError(problem, remedy)


def write(layout: Layout) -> None:
    """Create or update the files of a data directory; the caller holds its lock."""
    if layout.founded and not any(has_data(node) for node in layout.nodes):
        named = ", ".join(str(node.data_dir) for node in layout.nodes)
        raise DataDirError(
            f"{layout.data_dir} is of a quorum that ran, and the data of all its nodes are missing: {named}",
            f"put them back; if they are given up, remove {layout.data_dir} or name another --data-dir: a "
            "new quorum begins there",
        )
    try:
        # First: a start that is cut short is never taken for one of another size.
        _write_record(layout)
        secret = layout.data_dir / "peer.secret"
        if not secret.exists():
            write_file(secret, secrets.token_hex(32) + "\n", mode=0o600)
        for child in layout.children:
            OsDisk().make_dirs(str(child.folder))
            is_there = child.config_file.exists()
            present = _read_toml(child.config_file) if is_there else _first_settings(layout, child)
            ours = {name: {**present.get(name, {}), **keys} for name, keys in child.settings.items()}
            if present | ours != present:
                write_file(child.config_file, tomli_w.dumps(present | ours))
    except OSError as error:
        problem = f"{layout.data_dir} cannot be written to: {told_by_os(error, 'its files')}"
        raise DataDirError(problem, remedy_for_os(error)) from error


def _first_settings(layout: Layout, child: Child) -> dict[str, Any]:
    """Return what a process begins with and a person may change: brokers of a new cluster protect znodes."""
    # Programs may write into the tree of a cluster that is there.
    is_new = child.kind == "broker" and not layout.founded
    return {"security": {"protect_znodes": True}} if is_new else {}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        remedy = "mend it, or remove it to have it written again"
        raise DataDirError(f"{path} cannot be read: {error}", remedy) from error
    for key, value in sections.items():
        if not isinstance(value, dict):
            problem = f"{path}: {key} is outside of every section"
            raise DataDirError(problem, "put it below its section's header")
    return sections


def record_founding(layout: Layout) -> Layout:
    """Write down, once, that there is a cluster: from now on nobody of the directory founds one."""
    if layout.founded:
        return layout
    founded = replace(layout, founded=True)
    try:
        _write_record(founded)
    except OSError as error:
        raise DataDirError(told_by_os(error, "up.json"), remedy_for_os(error)) from error
    return founded


def has_data(node: Child) -> bool:
    """Tell whether a node has made its data directory its own, and still has it."""
    return (node.data_dir / "identity.json").exists()
