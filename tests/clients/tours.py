"""Unchanged clients on a tour: which there are, what each must say, and how its program is built and run.

A client's folder holds one small program that makes the calls of the client's own README, with its manifest.
Its arguments are the brokers (or the nodes) and a name that nothing has yet. It writes one line of JSON for
each step, {"step": name, ...}; `KAFKA` and `ZOOKEEPER` say what a step must show. What is downloaded or made
lies in the caches of the tools and in temporary folders, never in the tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kafka_jars import client_class_path
from tests.support.nodes import clean_environment
from tests.support.zookeeper import TEST_JVM_OPTIONS

FOLDER = Path(__file__).parent
RECORDS = 100
#: A first build downloads and compiles; rskafka takes three minutes of a core.
BUILD_DEADLINE_S = 900.0
TOUR_DEADLINE_S = 120.0
#: of the standard error of a program that failed
SHOWN_CHARACTERS = 3000

#: {step: what its line says}: of Kafka's clients
KAFKA: Mapping[str, Mapping[str, Any]] = {
    # a topic of three partitions with three replicas; again: the second time it is said to exist
    "created": {"again": True},
    "described": {"partitions": 3, "replicas": 3},
    # with keys and headers, the second half compressed
    "produced": {"records": RECORDS},
    "read": {"records": sorted([f"key {n}", f"value {n}", str(n)] for n in range(RECORDS))},
    "committed": {"offsets": RECORDS},
    # by the protocol of KIP-848
    "coordinated": {"records": RECORDS},
    # by kind: the first, the last, and that with the highest timestamp
    "measured": {"ordered": True},
    # a topic is found by its id, and in pieces
    "identified": {"same": True},
    "located": {"partitions": 3},
    "watched": {"producers": True},
    # moves, elections, features and quotas are asked for
    "governed": {},
    "grouped": {"listed": True, "state": "Empty"},
    # the offsets of a group go back to the beginning, and all is read again
    "reset": {"records": RECORDS},
    "configured": {"retention.ms": "3600000"},
    "grown": {"partitions": 4},
    # all records of a partition are deleted
    "purged": {"emptied": True},
    "ungrouped": {},
    "deleted": {},
}

#: {step: what its line says}: of ZooKeeper's clients
ZOOKEEPER: Mapping[str, Mapping[str, Any]] = {
    "created": {"again": "NODEEXISTS", "sequence": "/item-0000000001"},
    "changed": {
        "before": "one",
        "after": "three",
        "stale": "BADVERSION",
        "event": "NodeDataChanged /node",
    },
    "watched": {"children": "item-0000000001 member node", "owned": True, "event": "NodeDeleted /member"},
    "together": {"results": 4, "failed": "NONODE 2", "kept": True},
    "guarded": {"refused": "NOAUTH", "scheme": "digest"},
    "resumed": {"same": True},
    "followed": {
        "made": "NodeCreated /node/box",
        "gone": "NodeDeleted /node/box",
        "removed": "PersistentWatchRemoved /node",
    },
    "counted": {"created": True, "ephemerals": 1, "all": 5, "data": "five"},
    "configured": {"members": 3},
    "deleted": {"left": False},
    "closed": {},
}

_PRODUCES = ("created", "described", "produced", "read")
_JAVA_END = ("configured", "grown", "deleted")
_GROUPS = ("grouped", "purged", "ungrouped")
_ZOOKEEPER_FIRST = ("created", "changed", "watched", "together", "guarded", "resumed")


@dataclass(frozen=True)
class Client:
    """A client, and the steps that it can take, in order."""

    name: str
    version: str
    #: of its folder beside this file
    folder: str
    steps: Sequence[str]
    #: how its program is built: (client, a folder for what is built) -> command
    build: Callable[[Client, Path], list[str]]
    #: more arguments of its program
    arguments: Sequence[str] = ()

    @property
    def source(self) -> Path:
        """Where its program is."""
        return FOLDER / self.folder


def check(
    client: Client, expected: Mapping[str, Mapping[str, Any]], hosts: str, topic: str, folder: Path
) -> str:
    """Build and run a client's program; every step that it says is as expected, and it says all of them.

    Args:
        client: which one.
        expected: what its steps must show.
        hosts: of the brokers or the nodes, host:port with commas between them.
        topic: a name that nothing has yet.
        folder: an empty one, for what is built.

    Returns:
        What it wrote to its standard error.
    """
    command = [*client.build(client, folder), hosts, topic, *client.arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TOUR_DEADLINE_S,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    for line in said:
        if "records" in line and isinstance(line["records"], list):
            line["records"].sort()
    last = done.stderr[-SHOWN_CHARACTERS:]
    for line, step in zip(said, client.steps, strict=False):
        wanted = {"step": step, **expected[step]}
        assert line == wanted, f"not {wanted}, but {line}\n{last}"
    assert len(said) == len(client.steps), f"it ended before {client.steps[len(said)]!r}:\n{last}"
    assert done.returncode == 0, last
    return done.stderr


def tool(name: str) -> str:
    """Find a tool on the path.

    Raises:
        FileNotFoundError: it is not there.
    """
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"no {name} on PATH: run deploy/ensure-client-tools.sh, or install it")
    return found


def run(command: Sequence[str], folder: Path, **environment: str) -> None:
    """Run a step of a build; a failure shows what it wrote."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"


def python_tour(client: Client, _folder: Path) -> list[str]:
    """Run a Python program."""
    return [sys.executable, str(client.source / "tour.py")]


def go_tour(client: Client, folder: Path) -> list[str]:
    """Build a Go program; each version has a module file of its own."""
    shutil.copy(client.source / "main.go", folder)
    for kind in ("mod", "sum"):
        shutil.copy(client.source / f"{client.version}.{kind}", folder / f"go.{kind}")
    run([tool("go"), "build", "-o", "tour", "."], folder, GOFLAGS="")
    return [str(folder / "tour")]


def node_tour(client: Client, folder: Path) -> list[str]:
    """Install what the lock file names beside a copy of the program."""
    for name in ("package.json", "package-lock.json", "tour.mjs"):
        shutil.copy(client.source / name, folder)
    run([tool("npm"), "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    return [tool("node"), "tour.mjs"]


def cargo_tour(client: Client, _folder: Path) -> list[str]:
    """Build a Rust program in the user's cache, where a second build takes no time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quorate-tests" / client.folder
    shutil.copytree(client.source, cache, dirs_exist_ok=True)
    run([tool("cargo"), "build", "--quiet"], cache, CARGO_TARGET_DIR=str(cache / "target"))
    return [str(cache / "target" / "debug" / "tour")]


def java_tour(client: Client, folder: Path) -> list[str]:
    """Compile the program and the parts that this version can run."""
    path = client_class_path(client.source / "pom.xml", client.version, folder)
    parts = [str(client.source / f"{name}.java") for name in ("Tour", *client.arguments)]
    run([tool("javac"), "-nowarn", "-cp", path, "-d", str(folder), *parts], folder)
    logging = (
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        # where it says that it asks again with an older request
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.admin.KafkaAdminClient=debug",
    )
    return [tool("java"), *TEST_JVM_OPTIONS, *logging, "-cp", f"{folder}{os.pathsep}{path}", "Tour"]


def _java(version: str, *arguments: str, steps: Sequence[str]) -> Client:
    return Client("Kafka's Java client", version, "kafka-java", steps, java_tour, arguments)


def _zookeeper(version: str, *arguments: str, steps: Sequence[str]) -> Client:
    return Client("ZooKeeper's Java client", version, "zookeeper-java", steps, java_tour, arguments)


_MODERN = ("coordinated", "measured", "identified", "located", "watched", "governed")
_FULL = (*_PRODUCES, "committed", *_MODERN, *_GROUPS, *_JAVA_END)
_KAFKA_GO = (*_PRODUCES, "committed", "grouped", "configured", "grown", "ungrouped", "deleted")

#: What `make test` runs: no tool chain besides Python's and Java's.
QUICK = {
    "aiokafka": Client(
        *("aiokafka", "0.14.0", "aiokafka"),
        (*_PRODUCES, "committed", "grouped", "configured", "grown", "purged", "deleted"),
        python_tour,
    ),
    "java-1.0": _java("1.0.2", "First", steps=(*_PRODUCES, "committed", *_JAVA_END)),
    "java-4.1": _java("4.1.1", "Later", "Modern", "Groups", steps=_FULL),
}
#: What `make clients` runs besides.
SLOW = {
    "java-2.0": _java("2.0.1", "First", "Groups", steps=(*_PRODUCES, "committed", *_GROUPS, *_JAVA_END)),
    "java-3.9": _java("3.9.1", "Later", "Modern", "Groups", steps=_FULL),
    "kafka-go-0.4.47": Client("kafka-go", "0.4.47", "kafka-go", _KAFKA_GO, go_tour),
    "kafka-go-0.4.51": Client("kafka-go", "0.4.51", "kafka-go", _KAFKA_GO, go_tour),
    "sarama": Client(
        *("sarama", "1.61.1", "sarama"),
        (
            *(*_PRODUCES, "committed", "grouped", "configured", "located"),
            *("grown", "purged", "ungrouped", "deleted"),
        ),
        go_tour,
    ),
    "kafkajs": Client(
        *("kafkajs", "2.2.4", "kafkajs"),
        (
            *(*_PRODUCES, "committed", "grouped", "reset"),
            *("configured", "grown", "purged", "ungrouped", "deleted"),
        ),
        node_tour,
    ),
    "platformatic-kafka": Client(
        *("@platformatic/kafka", "1.35.0", "platformatic-kafka"),
        (
            *(*_PRODUCES, "committed", "coordinated", "grouped", "configured"),
            *("located", "grown", "purged", "ungrouped", "deleted"),
        ),
        node_tour,
    ),
    "rskafka": Client("rskafka", "0.6.0", "rskafka", (*_PRODUCES, "purged", "deleted"), cargo_tour),
}
#: Clients of the quorum; `make clients` runs them.
QUORUM = {
    "zookeeper-3.4": _zookeeper("3.4.8", steps=(*_ZOOKEEPER_FIRST, "deleted", "closed")),
    "zookeeper-3.9": _zookeeper(
        *("3.9.4", "Later"),
        steps=(*_ZOOKEEPER_FIRST, "followed", "counted", "configured", "deleted", "closed"),
    ),
}
