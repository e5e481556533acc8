"""Proxies of `quorate up --chaos`: names, settings, what is taken back; sides of `quorate chaos`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from broker.config.broker import load_broker_config
from quorum.cli.commands import chaos
from quorum.config.node import load_node_config
from quorum.errors import DataDirError, UsageError
from quorum.launcher.chaos import forget_proxies, read_record, record_file, with_proxies, write_record
from quorum.launcher.layout import Layout, plan, write

PORTS = {"client": 3000, "peer": 3100, "admin": 3200, "broker": 4000}


def planned(folder: Path) -> Layout:
    return plan(folder, 3, 2, PORTS)


def test_every_process_dials_proxies_and_keeps_its_ports(tmp_path: Path) -> None:
    layout, record = with_proxies(planned(tmp_path), 5000)
    write(layout)
    node = load_node_config(tmp_path / "node-1" / "node.toml", {})
    assert str(node.members[1]) == "127.0.0.1:3100"
    assert str(node.members[2]) == record.links["peer-1-2"].listen
    assert record.links["peer-1-2"].upstream == "127.0.0.1:3101"
    broker = load_broker_config(tmp_path / "broker-1" / "broker.toml", {})
    assert str(broker.dial[2]) == record.links["broker-1-2"].listen
    assert str(broker.advertised_client()) == record.links["client-b1"].listen
    assert record.links["quorum-b1-3"].upstream == "127.0.0.1:3002"
    listens = [link.listen for link in record.links.values()]
    assert len({*listens, record.api}) == len(listens) + 1


def test_a_start_without_proxies_takes_their_settings_back(tmp_path: Path) -> None:
    layout = planned(tmp_path)
    write(layout)
    path = tmp_path / "broker-1" / "broker.toml"
    path.write_text(path.read_text() + '[dial]\n9 = "10.0.0.9:9192"\n')
    before = tomllib.loads(path.read_text())
    behind, record = with_proxies(layout, 5000)
    write_record(behind, record)
    write(behind)
    assert tomllib.loads(path.read_text()) != before
    forget_proxies(layout)
    write(layout)
    assert tomllib.loads(path.read_text()) == before
    assert not record_file(tmp_path).exists()
    forget_proxies(layout)  # nothing is left to take back


def test_the_record_is_read_back(tmp_path: Path) -> None:
    layout, record = with_proxies(planned(tmp_path), 5000)
    tmp_path.joinpath("chaos.json").unlink(missing_ok=True)
    with pytest.raises(DataDirError, match="no cluster behind proxies"):
        read_record(tmp_path)
    write_record(layout, record)
    assert read_record(tmp_path) == record
    record_file(tmp_path).write_text('{"api": 1}')
    with pytest.raises(DataDirError, match="cannot be read"):
        read_record(tmp_path)


def test_sides_become_links_in_both_directions(tmp_path: Path) -> None:
    _, record = with_proxies(planned(tmp_path), 5000)
    assert chaos.read_sides(record, "1,2:3") == ({"1", "2"}, {"3"})
    assert chaos.between(record.links, {"1"}, {"2"}) == ["peer-1-2", "peer-2-1"]
    assert chaos.between(record.links, {"b1"}, {"1", "b2"}) == ["quorum-b1-1", "broker-1-2", "broker-2-1"]
    assert chaos.ends("client-b2") == ("", "b2")


@pytest.mark.parametrize("text", ["1", "1:1", "1:2:3", "1,7:2", "", ":"])
def test_sides_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    _, record = with_proxies(planned(tmp_path), 5000)
    with pytest.raises(UsageError):
        chaos.read_sides(record, text)


@pytest.mark.parametrize(("text", "found_ms"), [("200ms", 200), ("1s", 1000), ("1.5s", 1500)])
def test_times_are_read(text: str, found_ms: int) -> None:
    assert chaos.read_time_ms(text) == found_ms


@pytest.mark.parametrize("text", ["200", "-1ms", "ms", "1m", "١s"])
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        chaos.read_time_ms(text)
