"""Operations of the client: their bytes are what the server decodes, and replies mean what they should."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.client import (
    BadVersionError,
    ConnectionLossError,
    CreateMode,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NoParentError,
    OperationResult,
    ServerError,
    SessionExpiredError,
    Stat,
    Transaction,
    WatchEvent,
    lookups,
)
from quorum.client import requests as operations
from quorum.client.errors import server_error
from quorum.client.requests import PreparedRequest
from quorum.client.state import ClientState, check_transition
from quorum.client.watches import WatchCause
from quorum.errors import CODES, ProtocolError
from quorum.wire import replies
from quorum.wire.jute import STAT
from quorum.wire.protocol import OpCode
from quorum.wire.requests import decode_read
from tests.support.zookeeper_frames import decode_command

STAT_BYTES = bytes(range(68))


def ignore(_event: WatchEvent) -> None:
    """Take an event."""


def sent_command(request: PreparedRequest[Any]) -> list[Any]:
    frame = request.encode(7)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    op = int.from_bytes(frame[8:12], "big", signed=True)
    return decode_command(op, frame, 12, len(frame))


def body(frame: bytes) -> memoryview:
    return memoryview(frame)[4:]


@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (operations.create("/a", b"x", CreateMode.EPHEMERAL), [1, "/a", b"x", None, 1]),
        (operations.create2("/ü", None, CreateMode.EPHEMERAL_SEQUENTIAL), [15, "/ü", None, None, 3]),
        (operations.delete("/a", 4), [2, "/a", 4]),
        (operations.set_data("/a", b"", -1), [5, "/a", b"", -1]),
        (operations.sync("/a"), [9, "/a"]),
        (operations.close_session(), [-11]),
        (
            operations.multi(
                Transaction()
                .check("/c", 3)
                .create("/a", b"1", CreateMode.PERSISTENT_SEQUENTIAL)
                .create2("/b")
                .set("/a", None, 2)
                .delete("/d")
            ),
            [
                14,
                [
                    [13, "/c", 3],
                    [1, "/a", b"1", None, 2],
                    [15, "/b", b"", None, 0],
                    [5, "/a", None, 2],
                    [2, "/d", -1],
                ],
            ],
        ),
        (operations.multi(Transaction()), [14, []]),
    ],
)
def test_the_server_decodes_what_the_client_means(request_: PreparedRequest[Any], command: list[Any]) -> None:
    assert sent_command(request_) == command


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(
    ("make", "op"),
    [
        (operations.exists, OpCode.EXISTS),
        (operations.get, OpCode.GET_DATA),
        (operations.get_children, OpCode.GET_CHILDREN),
        (operations.get_children2, OpCode.GET_CHILDREN2),
    ],
)
def test_reads_ask_for_a_watch_only_when_there_is_a_callback(make: Any, op: OpCode, watched: bool) -> None:
    request = make("/a", ignore if watched else None)
    frame = request.encode(1)
    assert int.from_bytes(frame[8:12], "big") == op
    assert tuple(decode_read(frame, 12, len(frame))) == ("/a", watched)
    assert (request.watch is not None) is watched


def test_a_watch_is_armed_where_the_server_armed_it() -> None:
    for make, kind in ((operations.get, WatchCause.DATA), (operations.get_children, WatchCause.CHILD)):
        watch = make("/a", ignore).watch
        assert watch is not None
        assert (watch.armed_kind(0), watch.armed_kind(-101), watch.armed_kind(-102)) == (kind, None, None)
    watch = operations.exists("/a", ignore).watch
    assert watch is not None
    assert (watch.armed_kind(0), watch.armed_kind(-101)) == (WatchCause.DATA, WatchCause.EXIST)
    assert watch.armed_kind(-112) is None


def test_successful_replies_decode_to_results() -> None:
    stat = Stat._make(STAT.unpack(STAT_BYTES))
    assert (
        operations.create("/a", b"", CreateMode.PERSISTENT).decode(0, body(replies.encode_path(1, 2, "/a1")))
        == "/a1"
    )
    assert operations.get("/a", None).decode(0, body(replies.encode_data(1, 2, None, STAT_BYTES))) == (
        None,
        stat,
    )
    assert operations.exists("/a", None).decode(0, body(replies.encode_stat(1, 2, STAT_BYTES))) == stat
    assert operations.exists("/a", None).decode(-101, memoryview(b"")) is None
    children = replies.encode_children(1, 2, ["x", "y"], STAT_BYTES)
    assert operations.get_children2("/a", None).decode(0, body(children)) == (["x", "y"], stat)


def test_the_results_of_a_multi_stand_in_order() -> None:
    transaction = Transaction().create("/a").create2("/b").set("/c", b"").delete("/d").check("/e")
    stat = Stat._make(STAT.unpack(STAT_BYTES))
    frame = replies.encode_multi(
        1, 2, [(1, 0, "/a"), (15, 0, ("/b", STAT_BYTES)), (5, 0, STAT_BYTES), (2, 0, None), (13, 0, None)]
    )
    results = operations.multi(transaction).decode(0, body(frame))
    assert results == [
        OperationResult("/a", None),
        OperationResult("/b", stat),
        OperationResult(None, stat),
        OperationResult(None, None),
        OperationResult(None, None),
    ]
    assert results[1].written_stat == stat
    with pytest.raises(TypeError, match="create2 and set"):
        _ = results[0].written_stat


def test_a_failed_multi_names_the_operation_and_its_path() -> None:
    transaction = Transaction().check("/epoch", 3).set("/a", b"", 2).set("/b", b"", 2)
    frame = replies.encode_multi(1, 2, [(13, 0, None), (5, -103, None), (5, -2, None)])
    with pytest.raises(MultiFailedError, match="operation 1: /a") as caught:
        operations.multi(transaction).decode(0, body(frame))
    assert caught.value.index == 1
    assert isinstance(caught.value.cause, BadVersionError)
    assert caught.value.cause.path == "/a"
    assert caught.value.definite
    with pytest.raises(SessionExpiredError):
        operations.multi(transaction).decode(-112, memoryview(b""))


def test_several_reads_answer_for_the_paths_that_were_asked_for() -> None:
    paths = ["/a", "/b"]
    request = lookups.read_all(paths)
    paths[:] = ["/c"]
    answers = [replies.encode_read_answer(4, -101), replies.encode_read_answer(4, (b"x", STAT_BYTES))]
    frame = replies.encode_multi_read(1, 2, answers)
    first, second = request.decode(0, body(frame))
    assert isinstance(first, NoNodeError)
    assert first.path == "/a"
    assert second == (b"x", Stat._make(STAT.unpack(STAT_BYTES)))
    with pytest.raises(ProtocolError, match="2 nodes were read"):
        request.decode(0, body(replies.encode_multi_read(1, 2, answers[:1])))


def test_a_missing_parent_is_told_from_a_missing_node() -> None:
    for request in (
        operations.create("/a/b", b"", CreateMode.PERSISTENT),
        operations.create2("/a/b", b"", CreateMode.PERSISTENT),
    ):
        with pytest.raises(NoParentError, match="/a/b: the parent"):
            request.decode(-101, memoryview(b""))
    with pytest.raises(NoNodeError) as caught:
        operations.delete("/a", -1).decode(-101, memoryview(b""))
    assert type(caught.value) is NoNodeError
    frame = replies.encode_multi(1, 2, [(1, -101, None)])
    with pytest.raises(MultiFailedError) as multi_caught:
        operations.multi(Transaction().create("/x/y")).decode(0, body(frame))
    assert isinstance(multi_caught.value.cause, NoParentError)


@pytest.mark.parametrize("code", [code for code in CODES if code != 0])
def test_every_code_becomes_an_error_as_definite_as_the_table_says(code: int) -> None:
    error = server_error(code, "/a")
    assert isinstance(error, ServerError)
    assert (error.definite, error.retriable) == (CODES[code].definite, CODES[code].retriable)
    assert error.server_code == code
    assert type(error).code in (code, None)
    assert "/a" in str(error)
    assert type(error) is not ServerError or CODES[code].name in str(error)


def test_an_unknown_code_counts_as_indefinite() -> None:
    error = server_error(-9999, "/a")
    assert not error.definite
    assert not error.retriable
    assert "-9999" in str(error)


def test_a_lost_connection_is_indefinite_only_if_the_request_was_sent() -> None:
    sent = ConnectionLossError("set /a", "reset", sent=True)
    unsent = ConnectionLossError("set /a", "reset", sent=False)
    assert (sent.definite, sent.retriable, unsent.definite) == (False, True, True)
    assert "unknown" in str(sent)
    assert "never sent" in str(unsent)


def test_the_life_of_a_client_has_no_way_back_from_lost() -> None:
    check_transition(ClientState.CONNECTING, ClientState.CONNECTED)
    check_transition(ClientState.CONNECTED, ClientState.SUSPENDED)
    check_transition(ClientState.SUSPENDED, ClientState.LOST)
    for before in ClientState:
        if before is not ClientState.CLOSED:
            check_transition(before, ClientState.CLOSED)
        with pytest.raises(RuntimeError, match="no legal step"):
            check_transition(ClientState.CLOSED, before)
    for after in (ClientState.CONNECTED, ClientState.SUSPENDED, ClientState.CONNECTING):
        with pytest.raises(RuntimeError, match="lost"):
            check_transition(ClientState.LOST, after)


def test_error_of_exists_on_a_parent_is_not_swallowed() -> None:
    with pytest.raises(ServerError):
        operations.exists("/a", None).decode(-102, memoryview(b""))
    with pytest.raises(NodeExistsError):
        operations.create("/a", b"", CreateMode.PERSISTENT).decode(-110, memoryview(b""))
