"""The data directory of `quorate up`: nodes, ports, files, the lock, and who may be formatted."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from quorum.config.node import load_node_config
from quorum.errors import AddressInUseError, DataDirError, UsageError
from quorum.launcher.layout import (
    Layout,
    check_ports_free,
    format_options,
    make_data_dir,
    plan,
    start_options,
    tend_bootstrap,
    write,
)
from quorum.launcher.up_lock import Lock, process_start, user_of
from quorum.platform.os_runtime import OsDisk
from quorum.raft.datadir.identity import Start, open_data_dir

AS_BEFORE: dict[str, int | None] = {"client": None, "peer": None, "admin": None}


@pytest.mark.parametrize(
    "names",
    [
        *((), ("lock",), ("lock", "lost+found"), ("lock", "room.partial"), ("identity.json.partial", "lock")),
        *(("formatting",), ("formatting", "journal"), ("formatting", "journal", "snapshots")),
        *(("journal",), ("lock", "snapshots"), ("identity.json",), ("formatting", "identity.json")),
    ],
)
def test_what_counts_as_empty_is_what_a_node_formats(tmp_path: Path, names: tuple[str, ...]) -> None:
    node = plan(tmp_path, 1, AS_BEFORE).nodes[0]
    node.data_dir.mkdir(parents=True)
    for name in names:
        if name in ("journal", "snapshots", "lost+found"):
            (node.data_dir / name).mkdir()
        else:
            (node.data_dir / name).touch()
    empty = node.empty
    try:
        _, held = open_data_dir(
            OsDisk(), str(node.data_dir), "local", 1, start=Start.JOIN, rng=random.SystemRandom()
        )
    except DataDirError:
        formats = False
    else:
        held.release()
        formats = True
    assert empty == formats


def format_node(layout: Layout, node_id: int, identity: str = "{}") -> None:
    """What a node does on its first start, as far as the layout can see it."""
    folder = layout.nodes[node_id - 1].folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
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
    with pytest.raises(DataDirError, match=r"--nodes 3: .* is of a quorum of 1") as caught:
        plan(tmp_path, 3, AS_BEFORE)
    assert "--data-dir" in caught.value.remedy


@pytest.mark.parametrize("missing", [(1,), (3,), (1, 2, 3)])
def test_nodes_whose_folder_is_gone_are_nodes_that_lost_their_data(
    tmp_path: Path, missing: tuple[int, ...]
) -> None:
    layout = plan(tmp_path, 3, {"client": 3000, "peer": 3100, "admin": 3200})
    write(layout)
    for node_id in (1, 2, 3):
        format_node(layout, node_id, '{"cluster_id": "ab"}')
    tend_bootstrap(layout)
    for node_id in missing:
        shutil.rmtree(layout.nodes[node_id - 1].folder)
    again = plan(tmp_path, None, AS_BEFORE)
    assert len(again.nodes) == 3
    if len(missing) == 3:
        with pytest.raises(DataDirError, match="the data of all its nodes are missing"):
            write(again)
        return
    assert again == layout
    write(again)
    assert sorted(load_node_config(layout.nodes[1].config_file).members) == [1, 2, 3]
    lost = [node.node_id for node in again.nodes if start_options(again, node, replaced=False) is None]
    assert lost == list(missing)


@pytest.mark.parametrize("written", range(7))
def test_a_first_start_that_is_cut_short_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """After so many of the files that a first start writes."""
    rename = Path.rename

    def no_room(aside: Path, target: Path) -> Path:
        nonlocal written
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written -= 1
        return rename(aside, target)

    first = plan(tmp_path, 3, AS_BEFORE)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", no_room)
        if written < 6:
            with pytest.raises(DataDirError, match="No space left"):
                write(first)
        else:
            write(first)
    # Two files are enough to know how many nodes there are, and the marker comes first.
    layout = plan(tmp_path, 3 if not (tmp_path / "up.json").exists() else None, AS_BEFORE)
    assert layout == first
    write(layout)
    assert format_options(layout) == ["--bootstrap"]


def test_a_quorum_that_ran_is_not_founded_again_by_what_is_left_of_it(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    write(layout)
    for node_id in (1, 2, 3):
        format_node(layout, node_id)
    tend_bootstrap(layout)
    for node in layout.nodes:
        (node.data_dir / "identity.json").unlink()
    (layout.nodes[0].data_dir / "journal").mkdir()
    write(layout)
    assert [start_options(layout, node, replaced=False) for node in layout.nodes] == [[], None, None]


@pytest.mark.parametrize(
    "content",
    [
        *(None, "", "[3]", '{"nodes": "3"}', '{"nodes": 0}', '{"nodes": true}'),
        *("[" * 100_000, '{"nodes": 3, "founded": "no"}'),
    ],
)
def test_a_directory_whose_number_of_nodes_is_not_known_is_refused(
    tmp_path: Path, content: str | None
) -> None:
    write(plan(tmp_path, 2, AS_BEFORE))
    record = tmp_path / "up.json"
    assert json.loads(record.read_text()) == {"nodes": 2, "founded": False}
    if content is None:
        record.unlink()
    else:
        record.write_text(content)
    with pytest.raises(DataDirError, match=r"up\.json") as caught:
        plan(tmp_path, 2, AS_BEFORE)
    assert '{"nodes": 3}' in caught.value.remedy


@pytest.mark.parametrize(
    "names", [[], ["lock"], ["lock", "room.partial"], ["lock", "formatting", "journal", "snapshots"]]
)
def test_a_replaced_node_whose_formatting_was_cut_short_joins(tmp_path: Path, names: list[str]) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    write(layout)
    for node_id in (1, 2, 3):
        format_node(layout, node_id)
    tend_bootstrap(layout)
    node = layout.nodes[1]
    (node.data_dir / "identity.json").unlink()
    for name in names:
        (node.data_dir / name).touch()
    assert start_options(layout, node, replaced=True) == ["--join"]
    assert start_options(layout, node, replaced=False) is None


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


def test_a_port_that_a_node_of_a_killed_supervisor_still_holds_is_told_as_that(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        layout = plan(tmp_path, 1, {**AS_BEFORE, "client": listener.getsockname()[1]})
        with pytest.raises(AddressInUseError, match="which node 1 needs for ZooKeeper clients") as foreign:
            check_ports_free(layout)
        assert "stop what listens there" in foreign.value.remedy
        layout.nodes[0].data_dir.mkdir(parents=True)
        held = OsDisk().lock(str(layout.nodes[0].data_dir))
        with pytest.raises(AddressInUseError, match=rf"node 1 \(process {os.getpid()}\)") as caught:
            check_ports_free(layout)
        held.release()
    assert f"quorate down --data-dir {tmp_path}" in caught.value.remedy


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


def test_what_no_node_understands_is_left_for_the_node_to_refuse(tmp_path: Path) -> None:
    """Written anew as it was, whatever TOML allows: the next start must be able to read it."""
    write(plan(tmp_path, 1, AS_BEFORE))
    file = tmp_path / "node-1/node.toml"
    odd = '[limits]\n"tick ms" = inf\nday = 2026-01-02\n[limits.sub]\ntext = "ä\\n\\"x"\n["a.b"]\n'
    file.write_text(file.read_text() + odd)
    write(plan(tmp_path, None, {**AS_BEFORE, "client": 3000}))
    sections = tomllib.loads(file.read_text())
    assert sections["listen"]["client"] == "127.0.0.1:3000"
    assert {name: sections[name] for name in ("limits", "a.b")} == tomllib.loads(odd)


def test_a_node_toml_keeps_its_mode_and_the_place_that_it_links_to(tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "data", tmp_path / "node.toml"
    data_dir.mkdir()
    write(plan(data_dir, 1, AS_BEFORE))
    link = data_dir / "node-1/node.toml"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    elsewhere.chmod(0o600)
    write(plan(data_dir, None, {**AS_BEFORE, "client": 3000}))
    assert link.is_symlink()
    assert load_node_config(link).listen.client.port == 3000
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o600


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
    write(layout)
    format_node(layout, 1)
    # a first start that was cut short goes on
    tend_bootstrap(layout)
    write(layout)
    assert format_options(layout) == ["--bootstrap"]
    format_node(layout, 2)
    format_node(layout, 3)
    tend_bootstrap(layout)
    # a founder that lost its data is not formatted again, not even if all of them lost it but one
    for node in layout.nodes[1:]:
        (node.folder / "data/identity.json").unlink()
    write(layout)
    tend_bootstrap(layout)
    assert format_options(layout) == []


@pytest.mark.parametrize("lost", [(1,), (1, 2)])
def test_nobody_founds_a_second_cluster_before_every_node_was_formatted(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    """Two of three found a cluster and serve, the third waits for room; then data are lost."""
    layout = plan(tmp_path, 3, AS_BEFORE)
    write(layout)
    for node_id in (1, 2):
        format_node(layout, node_id, '{"cluster_id": "ab"}')
    tend_bootstrap(layout)
    for node_id in lost:
        shutil.rmtree(layout.nodes[node_id - 1].data_dir)
    assert layout.pending_file.exists()
    assert format_options(layout) == ["--join"]
    again = plan(tmp_path, None, AS_BEFORE)
    if lost == (1,):
        write(again)
        tend_bootstrap(again)
    else:
        with pytest.raises(DataDirError, match="the data of all its nodes are missing"):
            write(again)
    assert format_options(again) == ["--join"]


def test_a_marker_that_cannot_be_removed_founds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = plan(tmp_path, 1, AS_BEFORE)
    write(layout)
    format_node(layout, 1, '{"cluster_id": "ab"}')
    with monkeypatch.context() as patched:
        unlink = Path.unlink

        def kept(path: Path, *, missing_ok: bool = False) -> None:
            if path == layout.pending_file:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            unlink(path, missing_ok=missing_ok)

        patched.setattr(Path, "unlink", kept)
        with pytest.raises(OSError, match="Input/output"):
            tend_bootstrap(layout)
    shutil.rmtree(layout.nodes[0].data_dir)
    with pytest.raises(DataDirError, match="the data of all its nodes are missing"):
        write(plan(tmp_path, None, AS_BEFORE))


def test_a_record_that_is_damaged_while_nodes_run_lets_nobody_found(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, AS_BEFORE)
    write(layout)
    layout.record_file.write_text("{")
    tend_bootstrap(layout)
    assert format_options(layout) == ["--join"]
    assert layout.record_file.read_text() == "{"


def test_a_secret_that_was_there_before_any_start_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "peer.secret").write_text("0123456789abcdef")
    with pytest.raises(DataDirError, match=r"up\.json is missing, but there is .*/peer\.secret") as caught:
        plan(tmp_path, 3, AS_BEFORE)
    assert f"if no quorum ever ran here, move {tmp_path}/peer.secret away" in caught.value.remedy


def test_every_name_that_leads_to_the_data_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of folders that are there, and of identities before the marker goes; on Linux, where they show."""
    synced: list[Path] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", watched)
    data_dir = tmp_path / "a/data"
    make_data_dir(data_dir)
    assert set(synced) == {tmp_path, tmp_path / "a"}
    synced.clear()
    make_data_dir(data_dir)
    assert synced == [tmp_path / "a"]
    layout = plan(data_dir, 2, AS_BEFORE)
    write(layout)
    for node_id in (1, 2):
        format_node(layout, node_id)
    synced.clear()
    tend_bootstrap(layout)
    assert synced == [*(node.data_dir for node in layout.nodes), data_dir]


def test_a_directory_of_formatted_nodes_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    format_node(plan(tmp_path, 3, AS_BEFORE), 2)
    with pytest.raises(DataDirError, match=r"up\.json is missing, but there is .*node-2/data/identity"):
        plan(tmp_path, 3, AS_BEFORE)


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


def test_who_uses_a_nodes_data_is_told_by_its_lock(tmp_path: Path) -> None:
    assert user_of(tmp_path / "none") is None
    (tmp_path / "lock").touch()
    assert user_of(tmp_path) is None
    held = OsDisk().lock(str(tmp_path))
    assert user_of(tmp_path) == str(os.getpid())
    held.release()
    assert user_of(tmp_path) is None


def test_the_start_of_a_process_is_known_while_it_lives() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        assert process_start(child.pid) == process_start(child.pid) is not None
    assert process_start(child.pid) is None


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
