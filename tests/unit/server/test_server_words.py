"""Four-letter words, as monitors and ZooKeeper's tools read them."""

from __future__ import annotations

import re

import pytest

from quorum.wire.requests import encode_command, encode_read
from tests.unit.server.memory import MemoryNode

NOT_SERVING = "This ZooKeeper instance is not currently serving requests\n"

#: lines of srvr as ZooKeeper 3.9.5 prints them
SRVR = re.compile(
    r"Zookeeper version: 3\.9\.5-\S+\n"
    r"Latency min/avg/max: \d+/\d+\.\d+/\d+\n"
    r"Received: \d+\n"
    r"Sent: \d+\n"
    r"Connections: \d+\n"
    r"Outstanding: \d+\n"
    r"Zxid: 0x[0-9a-f]+\n"
    r"Mode: standalone\n"
    r"Node count: \d+\n"
)


def ask(node: MemoryNode, word: str) -> str:
    client = node.client()
    client.send(word.encode())
    assert client.has_ended()
    return client.received().decode()


def busy_node(**limits: object) -> MemoryNode:
    """A node with one client that has written, watched and has a request outstanding."""
    node = MemoryNode(**limits)
    client = node.greeted()
    client.send(encode_command(1, [1, "/a", b"12345", None, 1]), encode_read(2, 4, "/a", True))
    node.replica.holding = True
    client.send(encode_command(3, [2, "/none", -1]))
    return node


def test_ruok_is_answered_without_a_line_end() -> None:
    assert ask(MemoryNode(), "ruok") == "imok"


def test_srvr_has_zookeepers_lines_in_their_order() -> None:
    text = ask(busy_node(), "srvr")
    assert SRVR.fullmatch(text)
    rows = dict(line.split(": ") for line in text.splitlines())
    assert rows["Received"] == "5"
    assert rows["Sent"] == "3"
    assert rows["Connections"] == "2"
    assert rows["Outstanding"] == "1"
    assert rows["Zxid"] == "0x2"
    assert rows["Node count"] == "5"


def test_stat_lists_the_clients_between_the_version_and_the_rest() -> None:
    text = ask(busy_node(), "stat")
    version, clients, rest = re.split(r"Clients:\n|\n\n", text)
    assert SRVR.fullmatch(version + rest)
    assert clients.splitlines() == [
        " /10.0.0.1:50000[1](queued=1,recved=4,sent=3)",
        " /10.0.0.1:50000[1](queued=0,recved=1,sent=0)",
    ]


def test_mntr_has_a_row_per_value() -> None:
    node = busy_node()
    node.advance(4200)
    rows = dict(line.split("\t") for line in ask(node, "mntr").splitlines())
    assert rows["zk_server_state"] == "standalone"
    assert rows["zk_version"].startswith("3.9.5-")
    assert rows["zk_ephemerals_count"] == "1"
    assert rows["zk_num_alive_connections"] == "2"
    assert rows["zk_outstanding_requests"] == "1"
    assert rows["zk_znode_count"] == "5"
    assert rows["zk_watch_count"] == "1"
    assert rows["zk_global_sessions"] == "1"
    assert rows["zk_uptime"] == "4200"
    assert int(rows["zk_approximate_data_size"]) > 5
    assert rows["zk_packets_received"] == "5"


def test_the_latency_is_that_of_the_requests_that_waited() -> None:
    node = busy_node()
    node.time_ms += 30
    node.replica.release()
    latency = re.search(r"Latency min/avg/max: (.*)", ask(node, "srvr"))
    assert latency is not None
    assert latency[1] == "0/10.0/30"


def test_isro_tells_that_writes_are_served() -> None:
    assert ask(MemoryNode(), "isro") == "rw"


@pytest.mark.parametrize("word", ["srvr", "stat", "mntr"])
def test_without_a_leader_the_words_say_that_nothing_is_served(word: str) -> None:
    node = MemoryNode()
    node.replica.silence_ms = float("inf")
    assert ask(node, word) == NOT_SERVING
    assert ask(node, "ruok") == "imok"
    assert ask(node, "isro") == "null"


@pytest.mark.parametrize("word", ["conf", "dump", "envi", "wchs"])
def test_a_word_outside_of_the_list_is_refused_with_zookeepers_sentence(word: str) -> None:
    assert ask(MemoryNode(), word) == f"{word} is not executed because it is not in the whitelist.\n"


def test_the_list_decides() -> None:
    node = MemoryNode(four_letter_words=("srvr",))
    assert SRVR.fullmatch(ask(node, "srvr"))
    assert ask(node, "ruok") == "ruok is not executed because it is not in the whitelist.\n"


def test_four_letters_that_are_no_word_are_a_length_that_cannot_be() -> None:
    assert ask(MemoryNode(), "abcd") == ""


def test_a_word_may_arrive_in_pieces() -> None:
    node = MemoryNode()
    client = node.client()
    client.send(b"ru")
    assert not client.has_ended()
    client.send(b"ok")
    assert client.received() == b"imok"
