"""The order in which servers are tried: spread, fair, and slower after whole rounds without success."""

from __future__ import annotations

import random

import pytest

from quorum.client.hosts import BACKOFF_MAX_MS, HostPort, HostRotation, parse_hosts


def test_a_connect_string_names_servers_in_order_once() -> None:
    assert parse_hosts("a:1, b:2,a:1,[::1]:3,c") == [
        HostPort("a", 1),
        HostPort("b", 2),
        HostPort("::1", 3),
        HostPort("c", 2181),
    ]
    assert [str(host) for host in parse_hosts("a:1,[::1]:3")] == ["a:1", "[::1]:3"]


@pytest.mark.parametrize(
    ("hosts", "named"),
    [
        ("", "host:port"),
        ("a:1,,b:2", "host:port"),
        ("a:", "host:port"),
        (":2181", "host:port"),
        ("a:0", "65535"),
        ("a:65536", "65535"),
        ("a:99999999999999999999", "65535"),
        ("a:x", "number"),
        ("a:1/chroot", "chroot"),
        ("[::1:2181", "[address]:port"),
        ("[::1]2181", "[address]:port"),
    ],
)
def test_a_malformed_connect_string_is_refused_with_the_part_that_is_wrong(hosts: str, named: str) -> None:
    with pytest.raises(ValueError, match="hosts") as caught:
        parse_hosts(hosts)
    assert named in str(caught.value)


def test_every_server_is_tried_before_one_is_tried_again() -> None:
    servers = [HostPort("h", port) for port in range(1, 6)]
    rotation = HostRotation(servers, random.Random(7))
    first_round = [rotation.next_host() for _ in servers]
    assert sorted(first_round) == servers
    assert [rotation.next_host() for _ in servers] == first_round


def test_clients_spread_over_the_servers() -> None:
    servers = [HostPort("h", port) for port in range(3)]
    first = {HostRotation(servers, random.Random(seed)).next_host() for seed in range(30)}
    assert len(first) == 3


def test_waiting_begins_after_a_whole_round_grows_and_is_bounded() -> None:
    rotation = HostRotation([HostPort("h", 1), HostPort("h", 2)], random.Random(1))
    delays = [rotation.failed_delay_ms() for _ in range(40)]
    assert delays[::2] == [0.0] * 20
    waits = delays[1::2]
    assert 25.0 <= waits[0] <= 50.0
    assert waits[3] > waits[0]
    assert max(waits) <= BACKOFF_MAX_MS
    assert min(waits[10:]) >= BACKOFF_MAX_MS / 2
    rotation.connected()
    assert [rotation.failed_delay_ms(), rotation.failed_delay_ms() <= 50.0] == [0.0, True]


def test_no_server_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="hosts"):
        HostRotation([], random.Random(1))
