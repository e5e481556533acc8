"""Four-letter words, as monitors and ZooKeeper's tools read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quorum.server.speaking import SLICE_BYTES_MAX, SLICE_MS_MAX
from quorum.server.words import KNOWN
from quorum.wire.lookups import encode_watch_request
from quorum.wire.requests import encode_command, encode_read
from tests.unit.server.memory import GREETING, MemoryClient, MemoryNode

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


EVERY_WORD = tuple(KNOWN.values())


def watched_node(**limits: Any) -> tuple[MemoryNode, MemoryClient]:
    """A node with all words, and a client with an ephemeral and three data watches, one of them recursive."""
    node = MemoryNode(four_letter_words=EVERY_WORD, **limits)
    client = node.greeted()
    client.send(
        encode_command(1, [1, "/e", b"", None, 1]),
        encode_watch_request(2, 106, "/p", 0),
        encode_watch_request(3, 106, "/r", 1),
        encode_read(4, 4, "/", True),
        encode_read(5, 8, "/", True),
    )
    client.received()
    return node, client


def test_the_watch_words_count_data_watches_as_zookeeper_does() -> None:
    node, client = watched_node()
    session = f"0x{client.connection.session_id:x}"
    assert ask(node, "wchs") == "1 connections watching 3 paths\nTotal watches:3\n"
    assert ask(node, "wchc") == f"{session}\n\t/p\n\t/r\n\t/\n\n"
    assert ask(node, "wchp") == f"/p\n\t{session}\n/r\n\t{session}\n/\n\t{session}\n\n"
    assert "zk_watch_count\t5\n" in ask(node, "mntr"), "child watches count there"


def test_cons_tells_of_each_connection_its_session_and_last_request() -> None:
    node, _ = watched_node()
    idle = node.client()
    first, second, third, end = ask(node, "cons").split("\n", 3)
    assert re.fullmatch(
        r" /10\.0\.0\.1:50000\[1\]\(queued=0,recved=6,sent=6,sid=0x1,lop=GETC,est=\d{13},to=10000,lcxid=0x5,"
        r"lzxid=0x2,lresp=\d+,llat=0,minlat=0,avglat=0,maxlat=0\)",
        first,
    )
    assert second == " /10.0.0.1:50000[1](queued=0,recved=0,sent=0)"
    assert third.startswith(" /10.0.0.1:50000[1](queued=0,recved=1"), "the one that asks"
    assert end == "\n"
    assert not idle.has_ended()


def test_a_write_that_waited_shows_in_cons_until_it_is_reset() -> None:
    node, client = watched_node()
    node.replica.holding = True
    client.send(encode_command(6, [5, "/e", b"", -1]))
    node.time_ms += 40
    node.replica.release()
    line = ask(node, "cons").split("\n", 1)[0]
    assert "lop=SETD" in line
    assert "lcxid=0x6" in line
    assert "llat=40,minlat=0,avglat=6,maxlat=40" in line
    assert ask(node, "crst") == "Connection stats reset.\n"
    assert "recved=0,sent=0" in ask(node, "cons").split("\n", 1)[0]
    assert "maxlat=0)" in ask(node, "cons").split("\n", 1)[0]
    node.replica.holding = True
    client.send(encode_command(7, [5, "/e", b"", -1]))
    node.time_ms += 30
    node.replica.release()
    assert "llat=30,minlat=30,avglat=30,maxlat=30" in ask(node, "cons").split("\n", 1)[0]
    client.send(encode_read(8, 4, "/", False))
    assert "llat=30,minlat=0,avglat=15,maxlat=30" in ask(node, "cons").split("\n", 1)[0]


def test_srst_resets_what_the_server_counted() -> None:
    node, client = watched_node()
    node.replica.holding = True
    client.send(encode_command(6, [5, "/e", b"", -1]))
    node.time_ms += 40
    node.replica.release()
    assert "0/6.6667/40" in ask(node, "srvr")
    assert ask(node, "srst") == "Server stats reset.\n"
    text = ask(node, "srvr")
    assert "Latency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 1\n" in text


def test_dump_lists_sessions_ephemerals_and_connections() -> None:
    node, _ = watched_node()
    text = ask(node, "dump")
    assert text.startswith("SessionTracker dump:\nGlobal Sessions(1):\n0x1\t10000ms\nephemeral nodes dump:\n")
    assert "Sessions with Ephemerals (1):\n0x1:\n\t/e\nConnections dump:\n" in text
    assert "\tip: /10.0.0.1:50000 sessionId: 0x1\n" in text
    node.replica.sessions.become_leader([(1, 10_000), (2, 10_000)], node.time_ms)
    text = ask(node, "dump")
    assert re.search(r"Session Sets \(1\)/\(1\):\n2 expire at \w{3} .* UTC \d{4}:\n\t0x1\n\t0x2\n", text)


def test_conf_and_dirs_tell_settings_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "segment").write_bytes(bytes(1234))
    node, _ = watched_node(
        data_dir=str(tmp_path), client_port=2181, node_id=3, connections_per_address_max=60
    )
    rows = dict(line.split("=") for line in ask(node, "conf").splitlines())
    assert list(rows)[:4] == ["clientPort", "secureClientPort", "dataDir", "dataDirSize"]
    assert (rows["clientPort"], rows["dataDirSize"], rows["serverId"]) == ("2181", "1234", "3")
    assert (rows["tickTime"], rows["maxClientCnxns"]) == ("2000", "60")
    assert (rows["minSessionTimeout"], rows["maxSessionTimeout"]) == ("4000", "40000")
    assert ask(node, "dirs") == "datadir_size: 1234\nlogdir_size: 1234\n"


@pytest.mark.parametrize("known", [True, False])
def test_envi_tells_where_the_server_runs(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = watched_node()
    if not known:
        # As in a container that runs under a number which no file names.
        for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("os.getuid", lambda: 12_345_678)
    head, *lines = ask(node, "envi").splitlines()
    assert head == "Environment:"
    rows = dict(line.split("=", 1) for line in lines)
    assert rows["zookeeper.version"].startswith("3.9.5-")
    assert {"host.name", "os.name", "os.arch", "os.version", "user.dir"} <= set(rows)
    assert known == (rows["user.name"] != "12345678")


def test_envi_answers_where_the_folder_of_the_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "old-release"
    folder.mkdir()
    node, _ = watched_node()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert "user.dir=?\n" in ask(node, "envi")


def test_a_member_of_an_ensemble_tells_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = watched_node()
    monkeypatch.setattr(node.replica, "mode", lambda: "leader")
    monkeypatch.setattr(node.replica, "followers", lambda: (2, 1))
    rows = dict(line.split("\t") for line in ask(node, "mntr").splitlines())
    assert (rows["zk_server_state"], rows["zk_peer_state"]) == ("leader", "leading - broadcast")
    assert (rows["zk_followers"], rows["zk_synced_followers"]) == ("2", "1")
    assert "membership: \n" in ask(node, "conf")
    monkeypatch.setattr(node.replica, "mode", lambda: "follower")
    monkeypatch.setattr(node.replica, "followers", lambda: None)
    text = ask(node, "mntr")
    assert "zk_peer_state\tfollowing - broadcast\n" in text
    assert "zk_synced_followers" not in text


def test_a_node_that_may_only_be_read_says_so() -> None:
    node, _ = watched_node(read_only_mode=True)
    node.replica.silence_ms = float("inf")
    node.advance(60_000)
    assert ask(node, "isro") == "ro"
    assert "Mode: read-only\n" in ask(node, "srvr")
    assert "zk_server_state\tread-only\n" in ask(node, "mntr")
    reader = node.client()
    reader.greet(GREETING._replace(read_only=True))
    assert "zk_local_sessions\t1\n" in ask(node, "mntr")


@pytest.mark.parametrize("word", [word for word in EVERY_WORD if word not in ("ruok", "isro", "envi")])
def test_without_a_leader_the_words_say_that_nothing_is_served(word: str) -> None:
    node = MemoryNode(four_letter_words=EVERY_WORD)
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


WATCHES = 3000
#: longer than what the system takes at once, by some slices
LONG_PATHS = tuple(f"/{number:04}{'x' * 95}" for number in range(WATCHES))


def listing_node(**limits: Any) -> tuple[MemoryNode, MemoryClient]:
    """A node whose client watches so much that it takes several slices to list it."""
    node = MemoryNode(four_letter_words=EVERY_WORD, **limits)
    client = node.greeted()
    client.send(*(encode_read(2, 3, path, True) for path in LONG_PATHS))
    client.received()
    return node, client


@pytest.mark.parametrize("word", ["wchp", "wchc"])
def test_a_long_answer_is_written_in_slices_and_others_are_served_in_between(word: str) -> None:
    node, client = listing_node()
    asker = node.client()
    asker.send(word.encode(), turn=False)
    text = asker.received()
    assert len(text) < 2 * SLICE_BYTES_MAX, "one slice"
    client.send(encode_command(9, [1, "/new", b"", None, 0]), turn=False)
    # A watch that is used up before its line is made has none; who is gone is not looked for.
    node.replica.watches.remove(LONG_PATHS[-1], client.connection, 1 | 2)
    slices = 1
    while node.step():
        piece = asker.received()
        slices += bool(piece)
        text += piece
        assert len(piece) < 2 * SLICE_BYTES_MAX
    assert [reply.xid for reply in client.replies()] == [9]
    assert slices > 3
    assert asker.has_ended()
    assert not asker.was_dropped()
    listed = text.decode().split()
    assert [line for line in listed if line.startswith("/")] == list(LONG_PATHS[:-1])


def test_a_slice_ends_by_the_clock_too() -> None:
    node, _ = listing_node()
    asker = node.client()
    late = iter(range(10_000))
    node.frontend.now_ms = lambda: 1_000_000.0 + next(late)
    asker.send(b"wchs", turn=False)
    assert asker.received() == b""
    steps = 0
    while node.step():
        steps += 1
    assert steps > WATCHES / SLICE_MS_MAX / 2
    assert asker.received() == f"1 connections watching {WATCHES} paths\nTotal watches:{WATCHES}\n".encode()


def test_one_connection_a_turn_goes_on_with_its_answer() -> None:
    node, _ = listing_node()
    askers = [node.client() for _ in range(3)]
    for asker in askers:
        asker.send(b"wchp", turn=False)
        asker.received()
    order = []
    while node.step():
        spoke = [place for place, asker in enumerate(askers) if asker.received()]
        assert len(spoke) <= 1
        order += spoke
    assert order[:6] == [0, 1, 2, 0, 1, 2]
    assert all(asker.has_ended() for asker in askers)


def test_an_answer_waits_for_its_reader_and_a_reader_that_stops_is_dropped() -> None:
    node, _ = listing_node(handshake_timeout_ms=5000)
    slow, stopped = node.client(), node.client()
    for asker in (slow, stopped):
        asker.send(b"wchp", turn=False)
        asker.stream.pause_writing()
    node.turn()
    text = slow.received()
    assert len(text) < 2 * SLICE_BYTES_MAX
    while not slow.has_ended():
        node.advance(4000)
        slow.stream.resume_writing()
        node.step()
        node.step()
        slow.stream.pause_writing()
        text += slow.received()
    assert node.time_ms > 1_000_000.0 + 5000, "whoever reads may take longer"
    assert not slow.was_dropped()
    assert text.decode().count("\t") == WATCHES
    assert stopped.was_dropped()
    stopped.vanish()
    assert stopped.connection not in node.frontend.connections


def test_who_vanishes_in_the_middle_of_an_answer_costs_nothing_more() -> None:
    node, _ = listing_node()
    asker = node.client()
    asker.send(b"wchp", turn=False)
    asker.received()
    asker.vanish()
    node.turn()
    assert asker.received() == b""


def test_a_slow_disk_is_waited_for_beside_the_loop(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(99))
    node, client = watched_node(data_dir=str(tmp_path))
    node.slow_disk = True
    askers = [node.client() for _ in range(3)]
    for asker, word in zip(askers, (b"dirs", b"conf", b"dirs"), strict=True):
        asker.send(word)
        assert asker.received() == b""
        assert asker.stream.eof_received(), "netcat ends its side and reads"
    assert not client.stream.eof_received()
    client.send(encode_read(7, 4, "/", False))
    assert [reply.xid for reply in client.replies()] == [7]
    askers[2].vanish()
    assert len(node.beside) == 1, "all wait for one measurement"
    node.beside.popleft()()
    assert askers[0].received() == b"datadir_size: 99\nlogdir_size: 99\n"
    assert b"dataDirSize=99\n" in askers[1].received()
    assert askers[2].received() == b""
    assert askers[0].has_ended()


def test_a_directory_that_cannot_be_measured_has_no_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "segment").write_bytes(bytes(99))
    node, _ = watched_node(data_dir=str(tmp_path))

    def failing(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", failing)
        assert ask(node, "dirs") == "datadir_size: -1\nlogdir_size: -1\n"
    assert ask(node, "dirs") == "datadir_size: 99\nlogdir_size: 99\n"
