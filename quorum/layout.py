"""What `quorate up` keeps in its data directory, and how it is found again on the next start.

    DIR/up.lock            held while a supervisor runs; says which process that is
    DIR/up.log             the supervisor's own news when it is detached
    DIR/bootstrap.pending  there from the first start until every node has formatted its data
    DIR/peer.secret        what the nodes prove to each other, mode 0600
    DIR/node-I/node.toml   settings of node I; addresses are kept up to date, the rest stays as edited
    DIR/node-I/node.log    its log (node.log.1: the part before)
    DIR/node-I/data/       its hard state, which only the node touches

Formatting rule: nodes may format themselves only if none was formatted before this directory's first start,
because a founder that lost its data must not vote again under its old name. Once one of them belongs to a
cluster, the others may only join it; one that lost its data afterwards does so when the cluster gave its old
disk up (`quorate members replace`), and is not started before.
Source: flock(2); the identity of a founder in raft.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quorum.errors import AddressInUseError, DataDirError, UsageError, remedy_for_os, told_by_os

HOST = "127.0.0.1"
CLUSTER = "local"
NODES_MAX = 9
DEFAULT_NODES = 3
DEFAULT_PORTS: dict[str, int] = {"client": 2181, "peer": 2281, "admin": 8181}
IDENTITY_FILE = "identity.json"
#: what a data directory may hold that holds no data
_NO_DATA = frozenset({"lock", "lost+found"})
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
        """True if there are no data: the directory is missing or holds nothing."""
        try:
            return {path.name for path in self.data_dir.iterdir()} <= _NO_DATA
        except FileNotFoundError:
            return True
        except OSError:
            return False

    @property
    def founded(self) -> bool:
        """True once the node knows of a cluster that exists, its own or one that it met; also if its identity
        cannot be read, because then nobody can tell."""
        try:
            fields = json.loads((self.data_dir / IDENTITY_FILE).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError):
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
    def log_file(self) -> Path:
        """Where a detached supervisor writes its news."""
        return self.data_dir / "up.log"

    @property
    def hosts(self) -> str:
        """What a ZooKeeper client is given."""
        return ",".join(f"{HOST}:{node.client}" for node in self.nodes)


def plan(data_dir: Path, nodes: int | None, ports: Mapping[str, int | None]) -> Layout:
    """Decide which nodes stand in a data directory and on which ports; writes nothing.

    Args:
        data_dir: may be missing.
        nodes: how many, 1 to NODES_MAX; None: as many as there are, else DEFAULT_NODES.
        ports: "client", "peer", "admin" → the port of node 1 (node i has port + i - 1); None: as it was, else
            the default.

    Raises:
        UsageError: a number out of range, or ports that overlap.
        DataDirError: the directory holds another number of nodes, or a node.toml that cannot be read.
    """
    found = sorted(
        int(path.parent.name.removeprefix("node-")) for path in data_dir.glob("node-[1-9]/node.toml")
    )
    if nodes is not None and not 1 <= nodes <= NODES_MAX:
        raise UsageError(
            f"--nodes {nodes} is out of range", f"give 1 to {NODES_MAX}; 3 survive the loss of one"
        )
    if found and (found != list(range(1, len(found) + 1)) or nodes not in (None, len(found))):
        held = ", ".join(map(str, found))
        raise DataDirError(
            f"--nodes {nodes or DEFAULT_NODES}: {data_dir} already holds the nodes {held}",
            f"leave --nodes out to resume them, or name another --data-dir for {nodes or DEFAULT_NODES}",
        )
    count = len(found) or nodes or DEFAULT_NODES
    planned = []
    for node_id in range(1, count + 1):
        folder = data_dir / f"node-{node_id}"
        earlier = _earlier_ports(folder / "node.toml")
        of_node = {
            key: earlier.get(key, DEFAULT_PORTS[key] + node_id - 1) if base is None else base + node_id - 1
            for key, base in ports.items()
        }
        planned.append(LocalNode(node_id, folder, of_node["client"], of_node["peer"], of_node["admin"]))
    _check_ports(planned)
    return Layout(data_dir, tuple(planned))


def check_ports_free(layout: Layout) -> None:
    """See that every port can be bound, before anything is started.

    Raises:
        AddressInUseError: names every taken port and who needs it.
    """
    taken: list[tuple[int, str, int]] = []
    for node in layout.nodes:
        for key in DEFAULT_PORTS:
            port = getattr(node, key)
            with socket.socket() as probe:
                # as the node itself will bind: connections of an earlier life in TIME_WAIT do not count
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    taken.append((port, key, node.node_id))
    if taken:
        named = "; ".join(
            f"port {port}, which node {node_id} needs {_PURPOSE[key]}" for port, key, node_id in taken
        )
        first = {key: getattr(layout.nodes[0], key) for key in dict.fromkeys(key for _, key, _ in taken)}
        flags = " ".join(f"--{key}-port {port + NODES_MAX + 1}" for key, port in first.items())
        raise AddressInUseError(
            f"in use on {HOST}: {named}",
            f'stop what listens there, or choose others, as quorate up {flags} (or make up ARGS="{flags}")',
        )


def write(layout: Layout) -> bool:
    """Create or update the files of a data directory; the caller holds its lock.

    Returns:
        True if the nodes may format their data: none was formatted before the first start here.

    Raises:
        DataDirError: a node.toml cannot be read, a file cannot be written, or the data of all nodes are lost.
    """
    try:
        return _write(layout)
    except OSError as error:
        problem = f"{layout.data_dir} cannot be written to: {told_by_os(error, 'its files')}"
        raise DataDirError(problem, remedy_for_os(error)) from error


def _write(layout: Layout) -> bool:
    secret = layout.data_dir / "peer.secret"
    if not secret.exists():
        _write_new(secret, secrets.token_hex(32) + "\n")
    elif not layout.pending_file.exists():
        _refuse_if_all_lost(layout)
    if not any(node.formatted for node in layout.nodes) and not layout.pending_file.exists():
        # durable before the first node formats itself: a start that is cut short must find it
        _write_new(layout.pending_file, "Removed when every node has formatted its data directory.\n")
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
            _replace(node.config_file, to_toml(changed))
    return layout.pending_file.exists()


def _refuse_if_all_lost(layout: Layout) -> None:
    """Refuse to found another cluster where a first start was completed and all data are gone since."""
    if all(node.config_file.exists() and node.empty for node in layout.nodes):
        named = ", ".join(str(node.data_dir) for node in layout.nodes)
        raise DataDirError(
            f"{layout.data_dir} is of a quorum that ran, and the data of all its nodes are missing: {named}",
            f"put them back; if they are given up, remove {layout.data_dir} or name another --data-dir: a "
            "new quorum begins there",
        )


def finish_bootstrap(layout: Layout) -> bool:
    """Remove the marker of the first start once every node is formatted; from then on none is again.

    Returns:
        True if the first start is complete.
    """
    if layout.pending_file.exists() and all(node.formatted for node in layout.nodes):
        layout.pending_file.unlink()
        _sync_folder(layout.data_dir)
    return not layout.pending_file.exists()


def format_options(layout: Layout) -> list[str]:
    """Return what `quorate serve` is given so that a node may format an empty data directory, if it may.

    A founder only as long as no node of this directory knows of a cluster. From then on an empty one joins:
    it does not vote before the log knows its disk, which takes `quorate members replace` if it had another.
    """
    if finish_bootstrap(layout):
        return []
    return ["--join"] if any(node.founded for node in layout.nodes) else ["--bootstrap"]


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


class Lock:
    """The lock of a data directory. The kernel frees it when its process ends, however that happens."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "up.lock"
        self._file: int | None = None

    def acquire(self, **facts: object) -> None:
        """Take the lock and write down who holds it.

        Args:
            facts: JSON values to keep beside the process id and its start time.

        Raises:
            DataDirError: another supervisor runs on this directory.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise self._in_use() from None
        self._file = file
        os.ftruncate(file, 0)
        mine = {"pid": os.getpid(), "started": process_start(os.getpid()), **facts}
        try:
            os.pwrite(file, (json.dumps(mine, sort_keys=True) + "\n").encode(), 0)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def refuse_if_held(self) -> None:
        """See that nobody holds the lock, without taking it.

        Raises:
            DataDirError: another supervisor runs on this directory.
        """
        if self.held():
            raise self._in_use()

    def _in_use(self) -> DataDirError:
        holder = self.holder()
        who = f"process {holder['pid']}" if holder else "another process"
        return DataDirError(
            f"{self._path.parent} is in use by `quorate up` ({who})",
            f"stop that one (quorate down --data-dir {self._path.parent}), or name another --data-dir",
        )

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def held(self) -> bool:
        """Tell whether some process holds the lock."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def holder(self) -> dict[str, Any] | None:
        """Return what the holder wrote down, or None if there is nothing that can be trusted.

        The process must still be the one that wrote it: a process id alone may have been given to another one
        since.
        """
        try:
            facts = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return None
        if not isinstance(facts, dict) or type(facts.get("pid")) is not int:
            return None
        started = process_start(facts["pid"])
        return facts if started is not None and started == facts.get("started") else None


def process_start(pid: int) -> str | None:
    """Return when a process was started, as a text to compare, or None if no such process runs.

    One that has ended and only waits for its parent to learn its exit code (a zombie) does not run.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # the second field is the program's name in brackets, which may hold anything; behind it comes the
        # third, the state; the start time is the 22nd
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    command = ["/bin/ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def to_toml(sections: Mapping[str, Mapping[str, object]]) -> str:
    """Write sections of texts, numbers, booleans and flat lists as TOML."""
    lines: list[str] = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {_toml_value(value)}" for key, value in values.items()), ""]
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(each) for each in value) + "]"
    # JSON's texts, whole numbers and booleans are TOML's as well
    return json.dumps(value, ensure_ascii=False)


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


def _write_new(path: Path, content: str) -> None:
    """Create a file that only its owner can read, durably."""
    aside = path.with_name(path.name + ".new")
    aside.unlink(missing_ok=True)
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        # a stream writes all of it, or raises; a bare write may take a part
        with open(file, "wb") as stream:  # noqa: PTH123  # it is a descriptor
            stream.write(content.encode())
            stream.flush()
            os.fsync(file)
    except OSError as error:
        # the kernel names no file where it was given a descriptor
        error.filename = str(path)
        raise
    aside.rename(path)
    _sync_folder(path.parent)


def _replace(path: Path, content: str) -> None:
    aside = path.with_name(path.name + ".new")
    try:
        aside.write_text(content, encoding="utf-8")
        aside.rename(path)
    except OSError as error:
        error.filename = str(path)
        raise


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
