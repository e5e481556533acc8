"""Proxies in front of every link of a local cluster, for `quorate up --chaos` and `quorate chaos`.

    DIR/chaos.json    the address of toxiproxy's API, what each link joins, and the admin ports

A link is named after who dials whom: peer-1-2, broker-1-2 (brokers), quorum-b1-2 (a broker dials a node), and
client-1, client-b1 (clients dial). Decides names and ports; the processes keep their own, and their settings
name the proxies. Does not know who leads. Hard state: chaos.json, and those settings, which a start without
proxies takes back. Source: toxiproxy 2.5.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import tomli_w

from quorum.errors import AddressInUseError, DataDirError, UsageError
from quorum.launcher.child import HOST, Child
from quorum.launcher.files import write_file
from quorum.launcher.layout import Layout

DEFAULT_PORT: Final = 20_000
START_DEADLINE_S: Final = 10.0
POLL_S: Final = 0.05
SERVER: Final = "toxiproxy-server"
#: Ends the server when the supervisor has ended in any way: then the pipe on its standard input closes.
_KEEPER: Final = '"$@" & server=$!; cat >/dev/null; kill $server'


class Link(NamedTuple):
    """One proxy."""

    listen: str
    upstream: str


@dataclass(frozen=True, slots=True)
class ChaosRecord:
    """What chaos.json says."""

    #: host:port of toxiproxy's API
    api: str
    #: {name: link}
    links: Mapping[str, Link]
    #: {"1" or "b1": URL of its admin port}
    admins: Mapping[str, str]


def record_file(data_dir: Path) -> Path:
    """Where the record is."""
    return data_dir / "chaos.json"


def read_record(data_dir: Path) -> ChaosRecord:
    """Read chaos.json.

    Raises:
        DataDirError: there is none, or it cannot be read.
    """
    path = record_file(data_dir)
    try:
        fields = json.loads(path.read_bytes())
        links = {name: Link(**link) for name, link in fields["links"].items()}
        return ChaosRecord(fields["api"], links, fields["admins"])
    except FileNotFoundError as error:
        remedy = f"start it with quorate up --chaos --data-dir {data_dir}"
        raise DataDirError(f"{path} is missing: no cluster behind proxies runs there", remedy) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataDirError(f"{path} cannot be read: {error}", "start quorate up --chaos again") from error


def with_proxies(layout: Layout, first_port: int) -> tuple[Layout, ChaosRecord]:
    """Give every process settings that dial proxies; writes nothing.

    Args:
        layout: as planned without proxies.
        first_port: of toxiproxy's API; the links have the next ones.
    """
    links: dict[str, Link] = {}

    def link(name: str, child: Child, key: str) -> str:
        if name not in links:
            links[name] = Link(f"{HOST}:{first_port + 1 + len(links)}", f"{HOST}:{child.ports[key]}")
        return links[name].listen

    nodes = layout.nodes
    brokers = tuple(child for child in layout.children if child.kind == "broker")
    for child in layout.children:
        link(f"client-{mark(child)}", child, "client")
    changed: list[Child] = []
    for child in layout.children:
        own: dict[str, dict[str, object]] = {name: dict(keys) for name, keys in child.settings.items()}
        number = child.number
        if child.kind == "node":
            for other in nodes:
                if other is not child:
                    address = link(f"peer-{number}-{other.number}", other, "peer")
                    own["members"][str(other.number)] = address
        else:
            own["advertised"] = {"client": link(f"client-b{number}", child, "client")}
            own["quorum"] = {
                "hosts": [link(f"quorum-b{number}-{node.number}", node, "client") for node in nodes]
            }
            own["dial"] = {
                str(other.number): link(f"broker-{number}-{other.number}", other, "broker")
                for other in brokers
                if other is not child
            }
        changed.append(child._replace(settings=own))
    admins = {mark(child): child.admin_url for child in layout.children}
    return replace(layout, children=tuple(changed)), ChaosRecord(f"{HOST}:{first_port}", links, admins)


def mark(child: Child) -> str:
    """How links and `quorate chaos` name a process: 1 for node 1, b1 for broker 1."""
    return str(child.number) if child.kind == "node" else f"b{child.number}"


def write_record(layout: Layout, record: ChaosRecord) -> None:
    """Write chaos.json."""
    links = {name: link._asdict() for name, link in record.links.items()}
    content = {"api": record.api, "links": links, "admins": dict(record.admins)}
    write_file(record_file(layout.data_dir), json.dumps(content, indent=1) + "\n")


def forget_proxies(layout: Layout) -> None:
    """Take back what an earlier start with proxies wrote into the brokers' settings, and its record.

    The other settings that named proxies are written anew by every start.
    """
    if not record_file(layout.data_dir).exists():
        return
    listens = {link.listen for link in read_record(layout.data_dir).links.values()}
    for path in layout.data_dir.glob("broker-[1-9]/broker.toml"):
        sections: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
        for name in ("dial", "advertised"):
            kept = {key: value for key, value in sections.get(name, {}).items() if value not in listens}
            if kept or name not in sections:
                sections[name] = kept
            else:
                del sections[name]
        write_file(path, tomli_w.dumps({name: keys for name, keys in sections.items() if keys}))
    record_file(layout.data_dir).unlink()


def check_available(record: ChaosRecord) -> str:
    """See that the server and its driver are installed and its ports free; returns the server's path.

    Raises:
        UsageError: one of them is missing.
        AddressInUseError: a port is taken.
    """
    beside = Path(sys.executable).with_name(SERVER)
    server = str(beside) if beside.exists() else shutil.which(SERVER)
    if server is None:
        remedy = "build it: bash deploy/ensure-toxiproxy.sh (it needs Go)"
        raise UsageError(f"--chaos: there is no {SERVER} beside {sys.executable} or on the PATH", remedy)
    if find_spec("toxiproxy") is None:
        raise UsageError(
            "--chaos: toxiproxy-python is not installed", "install it: pip install 'quorate[chaos]'"
        )
    for address in (record.api, *(link.listen for link in record.links.values())):
        port = int(address.rpartition(":")[2])
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError) as error:
                problem = f"port {port}, which a proxy needs, cannot be bound: {error}"
                raise AddressInUseError(problem, "give another --chaos-port") from error
    return server


def start_server(server: str, layout: Layout, record: ChaosRecord) -> subprocess.Popen[bytes]:
    """Start toxiproxy and make all links; closing its standard input ends it.

    Raises:
        AddressInUseError: it does not serve in time.
    """
    host, _, port = record.api.rpartition(":")
    log = layout.data_dir / "toxiproxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "sh", server, "-host", host, "-port", port],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "LOG_LEVEL": "error"},
            start_new_session=True,
        )
    toxiproxy = driver(record)
    deadline = time.monotonic() + START_DEADLINE_S
    while not toxiproxy.running():
        if time.monotonic() > deadline or process.poll() is not None:
            stop_server(process)
            raise AddressInUseError(f"toxiproxy does not serve on {record.api}", f"look into {log}")
        time.sleep(POLL_S)
    for name, link in record.links.items():
        toxiproxy.create(upstream=link.upstream, name=name, listen=link.listen)
    return process


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End the server."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def driver(record: ChaosRecord) -> Any:
    """Return the object of toxiproxy-python that drives the server; it knows one server a process."""
    from toxiproxy import Toxiproxy  # noqa: PLC0415  # of an extra that is not always installed

    toxiproxy = Toxiproxy()
    host, _, port = record.api.rpartition(":")
    toxiproxy.update_api_consumer(host, int(port))
    return toxiproxy
