"""The commands of the admin port have the keys and types of a real ZooKeeper's AdminServer.

ZooKeeper's own code answers each command (java/AdminCommands.java), of a server in the same state: one client
with an ephemeral node and a watch. All that differs is listed; what is listed and no longer differs fails as
well.
Source: ZooKeeper administrator's guide 3.9 (the AdminServer).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
from kazoo.client import KazooClient

from quorum.local.embedded import ensemble_in_thread
from tests.support.java import CLIENT_JARS, JavaProgram, java_command
from tests.support.node_configs import free_ports

PROGRAM: Final = Path(__file__).parent / "java" / "AdminCommands.java"
DEADLINE_S: Final = 60.0
#: {command: its answer}, and the list of them under "names"
Answers = dict[str, Any]
#: {command that is not there: why}; the reasons stand in DIVERGENCES.md as well
ABSENT: Final = {
    **dict.fromkeys(("stat_reset", "connection_stat_reset"), "no GET changes anything"),
    "observer_connection_stat_reset": "there are no observers",
    **dict.fromkeys(("set_trace_mask", "get_trace_mask"), "there is no trace mask"),
    **dict.fromkeys(("snapshot", "restore"), "snapshots are at /v1/snapshots"),
    "hash": "nodes compare their digests by themselves",
    "initial_configuration": "the members are in the log, not in a file",
    "system_properties": "no Java",
}
#: {command: fields of ZooKeeper that are missing}
MISSING: Final[dict[str, set[str]]] = {
    "environment": {"java", "os.memory"},
    "server_stats": {
        *("proposal_stats", "client_response", "server_stats.client_response_stats"),
        *("server_stats.fsync_threshold_exceed_count", "server_stats.auth_failed_count"),
        *("server_stats.non_mtlsremote_conn_count", "server_stats.non_mtlslocal_conn_count"),
    },
}
MISSING["stats"] = MISSING["server_stats"]
#: {command: fields that only ours has}
OURS: Final = {"environment": {"python", "data"}}
#: {command: texts that ZooKeeper tells as objects of Java}
TEXTS: Final = {"zabstate": {"quorum_address", "election_address"}}
#: objects whose keys are ids or paths
MAPS: Final = frozenset(
    {
        *("expiry_time_to_session_ids", "session_id_to_ephemeral_paths", "session_id_to_watched_paths"),
        *("path_to_session_ids", "current_config"),
    }
)
#: the only row of `monitor` that ZooKeeper calls otherwise
FOLLOWERS: Final = "followers"


def types(value: object, name: str = "") -> dict[str, str]:
    """Return {name of a field: its type}, with dots if nested; of lists and maps by one of them."""
    if isinstance(value, Mapping):
        below = [max(value.values(), key=len)] if name.rpartition(".")[2] in MAPS and value else None
        fields = [("*", each) for each in below] if below else list(value.items())
        found = {name: "object"} if name else {}
        for key, each in fields:
            found |= types(each, f"{name}.{key}".lstrip("."))
        return found
    if isinstance(value, list):
        return {name: "list"} | (types(value[0], f"{name}[]") if value else {})
    return {name: type(value).__name__}


def of_environment(found: Mapping[str, str]) -> dict[str, str]:
    """Fold the names about Java, Python and memory, of which each has several."""
    heads = ("java", "os.memory", "python", "data")
    return {next((head for head in heads if key.startswith(head)), key): each for key, each in found.items()}


@contextlib.contextmanager
def watching(hosts: str) -> Iterator[None]:
    """Hold a session with an ephemeral node and a watch on it."""
    client = KazooClient(hosts)
    client.start(DEADLINE_S)
    try:
        client.create("/watched", b"x", ephemeral=True)
        client.get("/watched", watch=lambda _event: None)
        yield
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What ZooKeeper answers."""
    folder = tmp_path_factory.mktemp("zookeeper")
    client_port, peer_port, election_port = free_ports(3)
    (folder / "myid").write_text("1")
    lines = (
        *(
            "tickTime=500",
            "initLimit=10",
            "syncLimit=5",
            "standaloneEnabled=false",
            "admin.enableServer=false",
        ),
        *(f"dataDir={folder}", f"clientPort={client_port}", "clientPortAddress=127.0.0.1"),
        f"server.1=127.0.0.1:{peer_port}:{election_port}",
    )
    (folder / "zoo.cfg").write_text("\n".join(lines) + "\n")
    jars = (*CLIENT_JARS, "javax.servlet-api", "commons-io-")
    command = java_command(PROGRAM, str(folder / "zoo.cfg"), jars=jars)
    with JavaProgram(command, folder) as program:
        program.wait_for("serves", DEADLINE_S)
        with watching(f"127.0.0.1:{client_port}"):
            program.say("names")
            names = program.wait_for("names", DEADLINE_S)["value"]
            for name in names:
                program.say(name)
            answers = {name: program.wait_for(name, DEADLINE_S)["value"] for name in names}
    return {**answers, "names": names}


@pytest.fixture(scope="module")
def ours() -> Iterator[Answers]:
    """What a node answers."""
    with ensemble_in_thread(1, {"limits": {"tick_ms": 500}}) as node, watching(node.hosts):

        def ask(path: str) -> Any:
            with urlopen(f"{node.admin_urls[0]}{path}", timeout=DEADLINE_S) as answer:
                return json.load(answer)

        names = ask("/commands")["commands"]
        yield {**{name: ask(f"/commands/{name}") for name in names}, "names": names}


def test_the_commands_are_zookeepers_but_for_those_listed(theirs: Answers, ours: Answers) -> None:
    assert set(theirs["names"]) - set(ours["names"]) == set(ABSENT)
    assert set(ours["names"]) <= set(theirs["names"])


def test_every_answer_has_zookeepers_keys_and_types(theirs: Answers, ours: Answers) -> None:
    for name in sorted(set(ours["names"]) - {"monitor"}):
        expected, found = types(theirs[name]), types(ours[name])
        if name == "environment":
            expected, found = of_environment(expected), of_environment(found)
        for text in TEXTS.get(name, set()):
            assert expected[text] == "object"
            expected = {key: each for key, each in expected.items() if not key.startswith(f"{text}.")}
            expected[text] = "str"
        missing = {key for key in expected if key not in found}
        heads = {key for key in missing if not any(key.startswith(f"{each}.") for each in missing)}
        assert heads == MISSING.get(name, set()), name
        assert set(found) - set(expected) == OURS.get(name, set()), name
        both = expected.keys() & found.keys()
        assert {key: found[key] for key in both} == {key: expected[key] for key in both}, name


def test_every_row_of_monitor_has_zookeepers_name_and_type(theirs: Answers, ours: Answers) -> None:
    """Which rows ZooKeeper has besides is compared row by row in test_four_letter_words.py."""
    found, expected = types(ours["monitor"]), types(theirs["monitor"])
    found.pop(FOLLOWERS, None)
    assert found == {name: expected.get(name) for name in found}
