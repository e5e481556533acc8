"""What `quorate up` keeps in its data directory, and how it is found again on the next start.

    DIR/up.lock            held while a supervisor runs; says which process that is
    DIR/up.log             the supervisor's own news when it is detached
    DIR/bootstrap.pending  there from the first start until every node has formatted its data
    DIR/up.json            how many nodes there are, written after the marker and before what follows; and
                           that they founded a cluster, from when that was seen
    DIR/peer.secret        what the nodes prove to each other, mode 0600
    DIR/node-I/node.toml   settings of node I; when an address changes it is written anew, without comments
    DIR/node-I/node.log    its log (node.log.1: the part before)
    DIR/node-I/data/       its hard state, which only the node touches

Formatting rule: nodes may format themselves only if none was formatted before this directory's first start,
because a founder that lost its data must not vote again under its old name. Without the marker all of them
were, whatever is left of them. Once one of them belongs to a cluster, the others may only join it, also when
its data are gone again; one that lost its data after the marker went joins when the cluster gave its old disk
up (`quorate members replace`), and is not started before.
Source: the identity of a founder in raft.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from quorum.errors import AddressInUseError, DataDirError, UsageError, remedy_for_os, told_by_os
from quorum.launcher.up_lock import user_of

HOST = "127.0.0.1"
CLUSTER = "local"
NODES_MAX = 9
DEFAULT_NODES = 3
DEFAULT_PORTS: dict[str, int] = {"client": 2181, "peer": 2281, "admin": 8181}
IDENTITY_FILE = "identity.json"
#: in a data directory that is being formatted, until its identity is durable
_FORMATTING = "formatting"
#: what a data directory may hold that holds no data
_NO_DATA = frozenset({"lock", "lost+found", "room.partial", f"{IDENTITY_FILE}.partial"})
_HOW_TO_RECORD = (
    'put it back, as {"nodes": 3} for three nodes; or name another --data-dir: a new quorum begins there'
)
_PURPOSE = {"client": "for ZooKeeper clients", "peer": "for the other nodes", "admin": "for HTTP"}


class LocalNode(NamedTuple):
    """One node of a local quorum: its id, its folder, and its ports on loopback."""

    node_id: int
    folder: Path
    client: int
    peer: int
    admin: int

    @property
    def config_file(self) -> Path:
        """Its node.toml."""
        return self.folder / "node.toml"

    @property
    def log_file(self) -> Path:
        """Where its output goes."""
        return self.folder / "node.log"

    @property
    def admin_url(self) -> str:
        """Its admin port."""
        return f"http://{HOST}:{self.admin}"

    @property
    def data_dir(self) -> Path:
        """Its hard state."""
        return self.folder / "data"

    @property
    def formatted(self) -> bool:
        """True once the node owns its data directory."""
        return (self.data_dir / IDENTITY_FILE).exists()

    @property
    def empty(self) -> bool:
        """True if there are no data: the directory is missing, or holds at most a formatting cut short."""
        try:
            names = {path.name for path in self.data_dir.iterdir()}
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return IDENTITY_FILE not in names and (_FORMATTING in names or names <= _NO_DATA)

    @property
    def user(self) -> str | None:
        """The process that uses its data directory, None if there is none."""
        return user_of(self.data_dir)

    @property
    def founded(self) -> bool:
        """True once the node knows of a cluster that exists, its own or one that it met; also if its identity
        cannot be read, because then nobody can tell."""
        try:
            fields = json.loads((self.data_dir / IDENTITY_FILE).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError, RecursionError):
            return True
        return not isinstance(fields, dict) or bool(fields.get("cluster_id") or fields.get("met_cluster_id"))


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of one data directory, in order of their ids from 1."""

    data_dir: Path
    nodes: tuple[LocalNode, ...]

    @property
    def pending_file(self) -> Path:
        """The marker of a first start that is not complete."""
        return self.data_dir / "bootstrap.pending"

    @property
    def record_file(self) -> Path:
        """How many nodes there are, and whether they founded a cluster."""
        return self.data_dir / "up.json"

    @property
    def founding_recorded(self) -> bool:
        """True once a cluster of this directory was seen, whatever has become of the nodes' data since; also
        if the record cannot be read, because then nobody can tell."""
        try:
            record = _read_record(self.data_dir)
        except DataDirError:
            return True
        return record is not None and record.founded

    @property
    def secret_file(self) -> Path:
        """What the nodes prove to each other."""
        return self.data_dir / "peer.secret"

    @property
    def log_file(self) -> Path:
        """Where a detached supervisor writes its news."""
        return self.data_dir / "up.log"

    @property
    def hosts(self) -> str:
        """What a ZooKeeper client is given."""
        return ",".join(f"{HOST}:{node.client}" for node in self.nodes)


class _Record(NamedTuple):
    """What up.json says: how many nodes there are, and whether they were seen to have founded a cluster."""

    nodes: int
    founded: bool = False


def plan(data_dir: Path, nodes: int | None, ports: Mapping[str, int | None]) -> Layout:
    """Decide which nodes stand in a data directory and on which ports; writes nothing.

    Args:
        data_dir: may be missing.
        nodes: how many, 1 to NODES_MAX; None: as many as there are, else DEFAULT_NODES.
        ports: "client", "peer", "admin" → the port of node 1 (node i has port + i - 1); None: as it was, else
            the default.

    Raises:
        UsageError: a number out of range, or ports that overlap.
        DataDirError: the directory is of another number of nodes, that number is not known any more, or a
            node.toml cannot be read.
    """
    if nodes is not None and not 1 <= nodes <= NODES_MAX:
        raise UsageError(
            f"--nodes {nodes} is out of range", f"give 1 to {NODES_MAX}; 3 survive the loss of one"
        )
    record = _read_record(data_dir)
    if record is not None and nodes not in (None, record.nodes):
        raise DataDirError(
            f"--nodes {nodes}: {data_dir} is of a quorum of {record.nodes}",
            f"leave --nodes out to resume that one, or name another --data-dir for {nodes}",
        )
    count = record.nodes if record else nodes or DEFAULT_NODES
    folders = {node_id: data_dir / f"node-{node_id}" for node_id in range(1, count + 1)}
    earlier = {node_id: _earlier_ports(folder / "node.toml") for node_id, folder in folders.items()}
    planned = []
    for node_id, folder in folders.items():
        of_node = {}
        for key, first in ports.items():
            # One whose node.toml is gone stands where the others say.
            said = (known[key] - other + 1 for other, known in earlier.items() if key in known)
            before = earlier[node_id].get(key, next(said, DEFAULT_PORTS[key]) + node_id - 1)
            of_node[key] = before if first is None else first + node_id - 1
        planned.append(LocalNode(node_id, folder, of_node["client"], of_node["peer"], of_node["admin"]))
    _check_ports(planned)
    layout = Layout(data_dir, tuple(planned))
    if record is None:
        _refuse_if_unrecorded(layout)
    return layout


def _read_record(data_dir: Path) -> _Record | None:
    """Read up.json; None before the directory's first start."""
    path = Layout(data_dir, ()).record_file
    try:
        fields = json.loads(path.read_bytes())
        count, founded = fields["nodes"], fields.get("founded", False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataDirError(f"{path} cannot be read: {error}", _HOW_TO_RECORD) from error
    if type(count) is not int or not 1 <= count <= NODES_MAX:
        raise DataDirError(f"{path}: nodes = {count!r} is no number from 1 to {NODES_MAX}", _HOW_TO_RECORD)
    if type(founded) is not bool:
        raise DataDirError(f"{path}: founded = {founded!r} is neither true nor false", _HOW_TO_RECORD)
    return _Record(count, founded)


def _write_record(layout: Layout, *, founded: bool) -> None:
    record = _Record(len(layout.nodes), founded)
    _write_file(layout.record_file, json.dumps(record._asdict()) + "\n")


def _refuse_if_unrecorded(layout: Layout) -> None:
    """Refuse to take a directory for a new one that somebody started in: it would be founded again."""
    formatted = layout.data_dir.glob(f"node-[1-9]/data/{IDENTITY_FILE}")
    there = next((path for path in (*formatted, layout.secret_file) if path.exists()), None)
    if there is not None:
        remedy = _HOW_TO_RECORD
        if there == layout.secret_file:
            remedy += f"; if no quorum ever ran here, move {there} away: `quorate up` makes one"
        raise DataDirError(
            f"{layout.record_file} is missing, but there is {there}: how many nodes there are is not known",
            remedy,
        )


def check_ports_free(layout: Layout) -> None:
    """See that every port can be bound, before anything is started.

    Raises:
        AddressInUseError: names every taken port and who needs it.
    """
    taken: list[tuple[int, str, int]] = []
    for node in layout.nodes:
        for key, default in DEFAULT_PORTS.items():
            port = getattr(node, key)
            with socket.socket() as probe:
                # as the node itself will bind: connections of an earlier life in TIME_WAIT do not count
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        needs = f"which node {node.node_id} needs {_PURPOSE[key]}"
                        raise UsageError(
                            f"port {port}, {needs}, cannot be bound on {HOST}: {error.strerror}",
                            f"choose others, as --{key}-port {default}",
                        ) from error
                    taken.append((port, key, node.node_id))
    if taken:
        raise _in_use(layout, taken)


def _in_use(layout: Layout, taken: list[tuple[int, str, int]]) -> AddressInUseError:
    named = "; ".join(
        f"port {port}, which node {node_id} needs {_PURPOSE[key]}" for port, key, node_id in taken
    )
    users = {node.node_id: node.user for node in layout.nodes}
    who = ", ".join(f"node {node_id} (process {pid})" for node_id, pid in users.items() if pid is not None)
    if who:
        return AddressInUseError(
            f"in use on {HOST}: {named}; of an earlier `quorate up` there still runs {who}",
            f"quorate down --data-dir {layout.data_dir} waits until nothing runs there",
        )
    first = {key: getattr(layout.nodes[0], key) for key in dict.fromkeys(key for _, key, _ in taken)}
    flags = " ".join(f"--{key}-port {port + NODES_MAX + 1}" for key, port in first.items())
    return AddressInUseError(
        f"in use on {HOST}: {named}",
        f'stop what listens there, or choose others, as quorate up {flags} (or make up ARGS="{flags}")',
    )


def make_data_dir(data_dir: Path) -> None:
    """Make the folder of all nodes' data, and those above it, with names that a power cut leaves.

    Raises:
        DataDirError: it cannot be made.
    """
    try:
        missing = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
        data_dir.mkdir(parents=True, exist_ok=True)
        # One that is there, too: who made it may have ended before its name was durable.
        for folder in missing or [data_dir]:
            if os.access(folder.parent, os.R_OK | os.W_OK):
                _sync_folder(folder.parent)
    except OSError as error:
        problem = f"the data directory {data_dir} cannot be made: {error.strerror}"
        raise DataDirError(problem, "name a folder that you may write to with --data-dir") from error


def write(layout: Layout) -> None:
    """Create or update the files of a data directory; the caller holds its lock.

    Raises:
        DataDirError: a node.toml cannot be read, a file cannot be written, or the data of all nodes are lost.
    """
    try:
        _write(layout)
    except OSError as error:
        problem = f"{layout.data_dir} cannot be written to: {told_by_os(error, 'its files')}"
        raise DataDirError(problem, remedy_for_os(error)) from error


def _write(layout: Layout) -> None:
    if not layout.record_file.exists():
        # Each durable before the next: a start that is cut short is never taken for a complete one.
        _write_file(layout.pending_file, "Removed when every node has formatted its data directory.\n")
        _write_record(layout, founded=False)
    elif layout.founding_recorded or not layout.pending_file.exists():
        _refuse_if_all_lost(layout)
    if not layout.secret_file.exists():
        _write_file(layout.secret_file, secrets.token_hex(32) + "\n", mode=0o600)
    for node in layout.nodes:
        node.folder.mkdir(mode=0o755, exist_ok=True)
        sections = _read_toml(node.config_file) if node.config_file.exists() else {}
        changed = {
            **sections,
            "node": {**sections.get("node", {}), "id": node.node_id, "cluster": CLUSTER, "data_dir": "data"},
            "listen": {key: f"{HOST}:{getattr(node, key)}" for key in DEFAULT_PORTS},
            "members": {str(other.node_id): f"{HOST}:{other.peer}" for other in layout.nodes},
            "security": {**sections.get("security", {}), "peer_secret_file": "../peer.secret"},
        }
        if changed != sections:
            _write_file(node.config_file, tomli_w.dumps(changed))


def _refuse_if_all_lost(layout: Layout) -> None:
    """Refuse to found another cluster where one was, or was about to be, and all data are gone since."""
    if all(node.empty for node in layout.nodes):
        named = ", ".join(str(node.data_dir) for node in layout.nodes)
        raise DataDirError(
            f"{layout.data_dir} is of a quorum that ran, and the data of all its nodes are missing: {named}",
            f"put them back; if they are given up, remove {layout.data_dir} or name another --data-dir: a "
            "new quorum begins there",
        )


def tend_bootstrap(layout: Layout) -> None:
    """Record that there is a cluster once a node knows of one: from then on nobody of the directory founds.
    Remove the marker of the first start once every node is formatted: from then on none is again.

    Raises:
        OSError: the disk refuses.
    """
    if not layout.pending_file.exists():
        return
    if not layout.founding_recorded and any(node.founded for node in layout.nodes):
        _write_record(layout, founded=True)
    if all(node.formatted for node in layout.nodes):
        for node in layout.nodes:
            # The marker must not be gone before the identities are durable; they may be on other disks.
            _sync_folder(node.data_dir)
        layout.pending_file.unlink()
        _sync_folder(layout.data_dir)


def format_options(layout: Layout) -> list[str]:
    """Return what `quorate serve` is given so that a node may format an empty data directory, if it may.

    A founder only as long as no node of this directory knew of a cluster. From then on an empty one joins:
    it does not vote before the log knows its disk, which takes `quorate members replace` if it had another.
    """
    if not layout.pending_file.exists() or all(node.formatted for node in layout.nodes):
        return []
    founded = layout.founding_recorded or any(node.founded for node in layout.nodes)
    return ["--join"] if founded else ["--bootstrap"]


def start_options(layout: Layout, node: LocalNode, *, replaced: bool) -> list[str] | None:
    """Return what `quorate serve` is given for a node; None if it must not start, because its data are lost.

    Args:
        layout: of all nodes.
        node: one of them.
        replaced: the cluster waits for the node to join with an empty directory.
    """
    options = format_options(layout)
    if options or not node.empty:
        return options
    return ["--join"] if replaced else None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataDirError(
            f"{path} cannot be read: {error}", "mend it, or remove it to have it written again"
        ) from error
    loose = [key for key, value in sections.items() if not isinstance(value, dict)]
    if loose:
        raise DataDirError(
            f"{path}: {loose[0]} stands outside of every section", "put it below its section's header"
        )
    return sections


def _earlier_ports(path: Path) -> dict[str, int]:
    """The ports that a node.toml names; one that cannot be understood counts as not named."""
    if not path.exists():
        return {}
    listen = _read_toml(path).get("listen", {})
    pairs = {key: str(listen.get(key, "")).rpartition(":")[2] for key in DEFAULT_PORTS}
    return {key: int(port) for key, port in pairs.items() if port.isascii() and port.isdigit()}


def _check_ports(nodes: list[LocalNode]) -> None:
    seen: dict[int, str] = {}
    for node in nodes:
        for key in DEFAULT_PORTS:
            port = getattr(node, key)
            mine = f"node {node.node_id} {_PURPOSE[key]}"
            if not 1 <= port <= 65535:
                raise UsageError(
                    f"--{key}-port leads to port {port} for {mine}", "give ports from 1 to 65535"
                )
            if port in seen:
                raise UsageError(
                    f"port {port} is wanted twice: by {seen[port]} and by {mine}",
                    f"set --client-port, --peer-port and --admin-port at least {len(nodes)} apart",
                )
            seen[port] = mine


def _write_file(path: Path, content: str, mode: int = 0o644) -> None:
    """Create or replace a file in one step, durably; one that exists keeps its mode, a link leads on.

    Raises:
        OSError: the disk refuses; it names the file.
    """
    target = path.resolve()
    aside = target.with_name(target.name + ".new")
    try:
        aside.unlink(missing_ok=True)
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        # a stream writes all of it, or raises; a bare write may take a part
        with open(file, "wb") as stream:  # noqa: PTH123  # it is a descriptor
            if target.exists():
                os.fchmod(file, stat.S_IMODE(target.stat().st_mode))
            stream.write(content.encode())
            stream.flush()
            os.fsync(file)
        aside.rename(target)
        _sync_folder(target.parent)
    except OSError as error:
        # the kernel names no file where it was given a descriptor
        error.filename = str(path)
        raise


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
