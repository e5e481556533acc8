"""The data directory of `quorate up`: processes, ports, files, and which node may be formatted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import stat
import tomllib
from pathlib import Path

import pytest

from broker.config.broker import load_broker_config
from quorum.config.address import Address
from quorum.config.node import load_node_config
from quorum.errors import AddressInUseError, DataDirError, UsageError
from quorum.launcher.child import Child
from quorum.launcher.files import user_of
from quorum.launcher.layout import (
    Layout,
    check_ports_free,
    plan,
    record_founding,
    write,
)
from quorum.platform.os_runtime import OsDisk

PORTS = {"client": 3000, "peer": 3100, "admin": 3200, "broker": 4000}


def format_node(node: Child) -> None:
    """What a node does on its first start, as far as the layout can see it."""
    node.data_dir.mkdir(parents=True, exist_ok=True)
    (node.data_dir / "identity.json").write_text("{}")


def founded(data_dir: Path) -> Layout:
    """A quorum of three that was ready once."""
    layout = plan(data_dir, 3, 0, PORTS)
    write(layout)
    for node in layout.nodes:
        format_node(node)
    return record_founding(layout)


def test_a_new_directory_gets_three_nodes_and_brokers_on_the_well_known_ports(tmp_path: Path) -> None:
    layout = plan(tmp_path, None, None, {})
    assert {child.name: list(child.ports.values()) for child in layout.children} == {
        "node 1": [2181, 2281, 8181],
        "node 2": [2182, 2282, 8182],
        "node 3": [2183, 2283, 8183],
        "broker 1": [9092, 9192, 9292],
        "broker 2": [9093, 9193, 9293],
        "broker 3": [9094, 9194, 9294],
    }
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_a_configuration_that_loads(tmp_path: Path) -> None:
    layout = plan(tmp_path, 2, 2, PORTS)
    write(layout)
    node = load_node_config(tmp_path / "node-2/node.toml")
    assert (node.node.id, node.listen.client and node.listen.client.port, node.listen.admin.port) == (
        2,
        3001,
        3201,
    )
    assert {node_id: address.port for node_id, address in node.members.items()} == {1: 3100, 2: 3101}
    assert node.node.data_dir == tmp_path / "node-2/data"
    broker = load_broker_config(tmp_path / "broker-2/broker.toml")
    listen = (
        broker.listen.client and broker.listen.client.port,
        broker.listen.broker.port,
        broker.listen.admin.port,
    )
    assert (broker.broker.id, listen) == (2, (4001, 4101, 4201))
    assert [address.port for address in broker.quorum.hosts] == [3000, 3001]
    assert broker.broker.data_dir == tmp_path / "broker-2/data"
    assert broker.security.peer_secret_file == tmp_path / "broker-2/../peer.secret"
    assert stat.S_IMODE((tmp_path / "peer.secret").stat().st_mode) == 0o600


def test_a_later_start_finds_the_processes_and_ports_of_the_first(tmp_path: Path) -> None:
    first = plan(tmp_path, 1, 2, PORTS)
    write(first)
    assert plan(tmp_path, None, None, {}) == first
    moved = plan(tmp_path, 1, None, {"admin": 3300})
    assert [child.ports["admin"] for child in moved.children] == [3300, 4200, 4201]


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    write(plan(tmp_path, 1, 0, {}))
    with pytest.raises(DataDirError, match=r"--nodes 3: .* is of a quorum of 1") as caught:
        plan(tmp_path, 3, None, {})
    assert "--data-dir" in caught.value.remedy


def test_more_brokers_are_added_and_fewer_run_for_this_time(tmp_path: Path) -> None:
    def running(brokers: int | None) -> int:
        layout = plan(tmp_path, None, brokers, {})
        write(layout)
        return len(layout.children) - len(layout.nodes)

    assert [running(brokers) for brokers in (0, None, 2, None, 1, 0, None, 3, None)] == [
        *(0, 0, 2, 2, 1, 0, 2, 3, 3),
    ]


def test_a_quorum_whose_data_are_all_lost_is_not_founded_again(tmp_path: Path) -> None:
    for node in founded(tmp_path).nodes:
        shutil.rmtree(node.folder)
    with pytest.raises(DataDirError, match="the data of all its nodes are missing"):
        write(plan(tmp_path, None, None, {}))


def test_a_first_start_that_was_cut_short_may_found(tmp_path: Path) -> None:
    layout = plan(tmp_path, 3, 1, {})
    write(layout)
    again = plan(tmp_path, None, None, {})
    write(again)
    assert not again.founded
    assert ["--bootstrap" in child.command for child in again.children] == [True, True, True, False]


def test_a_cluster_that_cannot_be_recorded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = plan(tmp_path, 1, 0, {})
    write(layout)

    def no_room(aside: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), aside, None, target)

    monkeypatch.setattr(Path, "rename", no_room)
    with pytest.raises(DataDirError, match=r"up\.json: No space left"):
        record_founding(layout)


@pytest.mark.parametrize("written", range(5))
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

    first = plan(tmp_path, 3, 0, {})
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", no_room)
        with pytest.raises(DataDirError, match="No space left"):
            write(first)
    # One file is enough to know how many there are.
    there = (tmp_path / "up.json").exists()
    layout = plan(tmp_path, None if there else 3, None if there else 0, {})
    assert layout == first
    write(layout)


@pytest.mark.parametrize(
    "content", [None, "", "[3]", '{"nodes": "three"}', '{"nodes": 0}', '{"brokers": 3}', "[" * 100_000]
)
def test_a_directory_whose_number_of_nodes_is_not_known_is_refused(
    tmp_path: Path, content: str | None
) -> None:
    write(plan(tmp_path, 2, 0, {}))
    record = tmp_path / "up.json"
    if content is None:
        record.unlink()
    else:
        record.write_text(content)
    with pytest.raises(DataDirError, match=r"up\.json") as caught:
        plan(tmp_path, 2, 0, {})
    assert '{"nodes": 3}' in caught.value.remedy


def test_a_record_that_a_person_put_back_lets_nobody_found(tmp_path: Path) -> None:
    write(plan(tmp_path, 3, 1, {}))
    (tmp_path / "up.json").write_text('{"nodes": 3}')
    again = plan(tmp_path, None, None, {})
    assert (len(again.children), again.founded) == (6, True)


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ({"client": 2280}, "2281"),
        ({"client": 8181}, "8181"),
        ({"client": 65534}, "65536"),
        ({"client": 0}, "--client-port leads to 0"),
        ({"broker": 65400}, "--broker-port leads to 65600"),
        ({"console": 70000}, "--console-port 70000 is out of range"),
        ({"broker": 2082}, "2182 is wanted twice"),
    ],
)
def test_ports_that_overlap_or_do_not_exist_are_refused(
    tmp_path: Path, ports: dict[str, int], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        plan(tmp_path, 3, 3, ports)


@pytest.mark.parametrize("kind", ["node", "broker"])
def test_a_port_that_a_process_of_a_killed_supervisor_still_holds_is_told_as_that(
    tmp_path: Path, kind: str
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        layout = plan(tmp_path, 1, 1, {"client" if kind == "node" else "broker": port})
        with pytest.raises(AddressInUseError, match=f"port {port}, which {kind} 1 needs") as foreign:
            check_ports_free(layout)
        assert "stop what listens there" in foreign.value.remedy
        child = next(child for child in layout.children if child.kind == kind)
        child.data_dir.mkdir(parents=True)
        held = OsDisk().lock(str(child.data_dir))
        with pytest.raises(AddressInUseError, match=rf"{kind} 1 \(process {os.getpid()}\)") as caught:
            check_ports_free(layout)
        held.release()
    assert f"quorate down --data-dir {tmp_path}" in caught.value.remedy


@pytest.mark.parametrize("kind", ["node", "broker"])
def test_settings_that_a_person_added_stay_and_addresses_are_brought_up_to_date(
    tmp_path: Path, kind: str
) -> None:
    write(plan(tmp_path, 1, 1, {}))
    file = tmp_path / f"{kind}-1/{kind}.toml"
    edited = file.read_text() + "# mine\n[limits]\nmine = 500\n"
    file.write_text(edited)
    write(plan(tmp_path, None, None, {}))
    assert file.read_text() == edited
    write(plan(tmp_path, None, None, {"client": 3000, "broker": 3000 + 1}))
    sections = tomllib.loads(file.read_text())
    assert sections["limits"] == {"mine": 500}
    assert sections["listen"]["client"] == f"127.0.0.1:{3000 if kind == 'node' else 3001}"


def test_brokers_of_a_new_cluster_protect_znodes_unless_a_person_says_otherwise(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, 2, {})
    write(layout)
    files = [broker.config_file for broker in layout.children if broker.kind == "broker"]
    assert [load_broker_config(file).security.protect_znodes for file in files] == [True, True]
    files[0].write_text(files[0].read_text().replace("protect_znodes = true", "protect_znodes = false"))
    format_node(layout.nodes[0])
    record_founding(layout)
    # The cluster is there: what a broker that comes later finds in the quorum decides.
    later = plan(tmp_path, None, 3, {})
    write(later)
    files.append(later.children[-1].config_file)
    assert [load_broker_config(file).security.protect_znodes for file in files] == [False, True, False]


def test_what_no_node_understands_is_left_for_the_node_to_refuse(tmp_path: Path) -> None:
    """Written anew as it was, whatever TOML allows: the next start must be able to read it."""
    write(plan(tmp_path, 1, 0, {}))
    file = tmp_path / "node-1/node.toml"
    odd = '[limits]\n"tick ms" = inf\nday = 2026-01-02\n[limits.sub]\ntext = "ä\\n\\"x"\n["a.b"]\n'
    file.write_text(file.read_text() + odd)
    write(plan(tmp_path, None, None, {"client": 3000}))
    sections = tomllib.loads(file.read_text())
    assert sections["listen"]["client"] == "127.0.0.1:3000"
    assert {name: sections[name] for name in ("limits", "a.b")} == tomllib.loads(odd)


def test_a_node_toml_keeps_its_mode_and_the_place_that_it_links_to(tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "data", tmp_path / "node.toml"
    data_dir.mkdir()
    write(plan(data_dir, 1, 0, {}))
    link = data_dir / "node-1/node.toml"
    link.rename(elsewhere)
    link.symlink_to(elsewhere)
    elsewhere.chmod(0o600)
    write(plan(data_dir, None, None, {"client": 3000}))
    assert link.is_symlink()
    assert load_node_config(link).listen.client == Address("127.0.0.1", 3000)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["[node", "id = 1\n"])
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    layout = plan(tmp_path, 1, 1, {})
    write(layout)
    for child in layout.children:
        before = child.config_file.read_text()
        child.config_file.write_text(content)
        with pytest.raises(DataDirError, match=str(child.config_file)):
            write(layout)
        child.config_file.write_text(before)


def test_the_secret_stays_the_same(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, 0, {})
    write(layout)
    secret = (tmp_path / "peer.secret").read_text()
    write(layout)
    assert (tmp_path / "peer.secret").read_text() == secret


def test_the_record_says_counts_ports_and_founding(tmp_path: Path) -> None:
    layout = plan(tmp_path, 1, 2, PORTS)
    write(layout)
    fields = {"nodes": 1, "brokers": 2, "ports": PORTS | {"console": 8080}}
    assert json.loads((tmp_path / "up.json").read_text()) == fields | {"founded": False}
    record_founding(layout)
    assert json.loads((tmp_path / "up.json").read_text()) == fields | {"founded": True}


def test_what_is_written_is_durable_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux, where the file that is synced shows."""
    synced: list[Path] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)

    monkeypatch.setattr(os, "fsync", watched)
    write(plan(tmp_path, 1, 0, {}))
    node = tmp_path / "node-1"
    assert synced == [
        *(tmp_path / "up.json.new", tmp_path, tmp_path / "peer.secret.new", tmp_path),
        *(tmp_path.parent, tmp_path, node / "node.toml.new", node),
    ]


def test_which_process_uses_a_data_directory_is_told_by_its_lock(tmp_path: Path) -> None:
    assert user_of(tmp_path / "none") is None
    (tmp_path / "lock").touch()
    assert user_of(tmp_path) is None
    held = OsDisk().lock(str(tmp_path))
    assert user_of(tmp_path) == str(os.getpid())
    held.release()
    assert user_of(tmp_path) is None
