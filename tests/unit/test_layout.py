"""The data directory of `quorate up`: nodes, ports, files, the lock, and who may be formatted."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from quorum.config import load_node_config
from quorum.errors import DataDirError, UsageError
from quorum.layout import (
    IDENTITY_FILE,
    Layout,
    Lock,
    finish_bootstrap,
    format_options,
    plan,
    process_start,
    to_toml,
    write,
)
from quorum.raft.identity import IDENTITY_NAME

AS_BEFORE: dict[str, int | None] = {"client": None, "peer": None, "admin": None}


def test_a_formatted_node_is_known_by_the_file_that_nodes_write() -> None:
    assert IDENTITY_FILE == IDENTITY_NAME


def format_node(layout: Layout, node_id: int, identity: str = "{}") -> None:
    """What a node does on its first start, as far as the layout can see it."""
    folder = layout.nodes[node_id - 1].folder / "data"
    folder.mkdir(parents=True)
    (folder / "identity.json").write_text(identity)


def test_a_new_directory_gets_three_nodes_on_the_well_known_ports(tmp_path: Path) -> None:
    layout = plan(tmp_path, None, AS_BEFORE)
    assert [(node.node_id, node.client, node.peer, node.admin) for node in layout.nodes] == [
        (1, 2181, 2281, 8181),
        (2, 2182, 2282, 8182),
        (3, 2183, 2283, 8183),
    ]
    assert layout.hosts == "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_a_configuration_that_loads(tmp_path: Path) -> None:
    layout = plan(tmp_path, 2, {**AS_BEFORE, "client": 3000})
    write(layout)
    config = load_node_config(layout.nodes[1].config_file)
    assert (config.node.id, config.listen.client.port, config.listen.admin.port) == (2, 3001, 8182)
    assert {node_id: address.port for node_id, address in config.members.items()} == {1: 2281, 2: 2282}
    assert config.node.data_dir == tmp_path / "node-2/data"
    assert stat.S_IMODE((tmp_path / "peer.secret").stat().st_mode) == 0o600


def test_a_later_start_finds_the_nodes_and_ports_of_the_first(tmp_path: Path) -> None:
    first = plan(tmp_path, 1, {"client": 3000, "peer": 3100, "admin": 3200})
    write(first)
    assert plan(tmp_path, None, AS_BEFORE) == first
    assert plan(tmp_path, 1, {**AS_BEFORE, "admin": 3300}).nodes[0] == first.nodes[0]._replace(admin=3300)


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    write(plan(tmp_path, 1, AS_BEFORE))
    with pytest.raises(DataDirError, match=r"--nodes 3.*already holds the nodes 1") as caught:
        plan(tmp_path, 3, AS_BEFORE)
    assert "--data-dir" in caught.value.remedy


def test_a_gap_among_the_nodes_is_refused(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    write(layout)
    layout.nodes[1].config_file.unlink()
    with pytest.raises(DataDirError, match="holds the nodes 1, 3"):
        plan(tmp_path, None, AS_BEFORE)


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ({"client": 2280, "peer": None, "admin": None}, "2281"),
        ({"client": 8181, "peer": None, "admin": None}, "8181"),
        ({"client": 65534, "peer": None, "admin": None}, "65536"),
        ({"client": 0, "peer": None, "admin": None}, "port 0"),
    ],
)
def test_ports_that_overlap_or_do_not_exist_are_refused(
    tmp_path: Path, ports: dict[str, int | None], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        plan(tmp_path, 3, ports)


def test_settings_that_a_person_added_stay_and_addresses_are_brought_up_to_date(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, AS_BEFORE)
    write(layout)
    file = layout.nodes[0].config_file
    edited = file.read_text() + "# mine\n[limits]\ntick_ms = 500\n"
    file.write_text(edited)
    write(layout)
    assert file.read_text() == edited
    write(plan(tmp_path, None, {**AS_BEFORE, "client": 3000}))
    assert tomllib.loads(file.read_text())["limits"] == {"tick_ms": 500}
    assert load_node_config(file).listen.client.port == 3000


@pytest.mark.parametrize("content", ["[node", "id = 1\n"])
def test_a_node_toml_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    layout = plan(tmp_path, 1, AS_BEFORE)
    write(layout)
    layout.nodes[0].config_file.write_text(content)
    with pytest.raises(DataDirError, match=r"node-1/node\.toml"):
        plan(tmp_path, None, AS_BEFORE)


def test_the_secret_stays_the_same(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, AS_BEFORE)
    write(layout)
    secret = (tmp_path / "peer.secret").read_text()
    write(layout)
    assert (tmp_path / "peer.secret").read_text() == secret


def test_nodes_may_be_formatted_until_the_first_start_is_complete_and_never_again(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    assert write(layout)
    format_node(layout, 1)
    # a first start that was cut short goes on
    assert not finish_bootstrap(layout)
    assert write(layout)
    format_node(layout, 2)
    format_node(layout, 3)
    assert finish_bootstrap(layout)
    # a founder that lost its data is not formatted again, not even if all of them lost it but one
    for node in layout.nodes[1:]:
        (node.folder / "data/identity.json").unlink()
    assert not write(layout)
    assert finish_bootstrap(layout)


def test_a_directory_of_formatted_nodes_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    format_node(layout, 2)
    assert not write(layout)


def test_the_lock_has_one_holder_who_says_who_it_is(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    assert not lock.held()
    lock.acquire(detached=True)
    assert lock.held()
    holder = Lock(tmp_path).holder()
    assert holder is not None
    assert (holder["pid"], holder["detached"]) == (os.getpid(), True)
    with pytest.raises(DataDirError, match=f"process {os.getpid()}") as caught:
        Lock(tmp_path).acquire()
    assert "quorate down" in caught.value.remedy
    lock.release()
    assert not lock.held()
    Lock(tmp_path).acquire()


def test_a_holder_whose_process_id_belongs_to_another_process_now_is_not_believed(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.acquire()
    (tmp_path / "up.lock").write_text(json.dumps({"pid": os.getpid(), "started": "long ago"}))
    assert lock.holder() is None
    with pytest.raises(DataDirError, match="another process"):
        Lock(tmp_path).acquire()
    lock.release()


def test_the_start_of_a_process_is_known_while_it_lives() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        assert process_start(child.pid) == process_start(child.pid) is not None
    assert process_start(child.pid) is None


def test_toml_is_read_back_as_it_was_written() -> None:
    sections = {"a": {"text": 'ä "x"\n', "number": 1, "flag": True, "list": ["*", 2]}, "b": {}}
    assert tomllib.loads(to_toml(sections)) == sections


@pytest.mark.parametrize(
    ("identity", "options"),
    [
        ('{"cluster_id": "", "met_cluster_id": ""}', ["--bootstrap"]),
        ('{"cluster_id": "ab"}', ["--join"]),
        ('{"cluster_id": "", "met_cluster_id": "ab"}', ["--join"]),
        ("damaged", ["--join"]),
    ],
)
def test_nobody_founds_once_a_node_of_the_directory_knows_of_a_cluster(
    tmp_path: Path, identity: str, options: list[str]
) -> None:
    layout = plan(tmp_path, None, AS_BEFORE)
    write(layout)
    assert format_options(layout) == ["--bootstrap"]
    format_node(layout, 1, identity)
    assert format_options(layout) == options
    for node_id in (2, 3):
        format_node(layout, node_id)
    assert format_options(layout) == []
