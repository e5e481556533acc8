"""How a client begins and ends, whatever comes between: no call and no start may wait for what never comes.

Handshakes at the last moment, servers that say nothing, refusals on a later connection, closing at any time,
numbers that fit into no request, and a client that fails by itself. The server is a script over real sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorum.client import (
    AccessEntry,
    AuthFailedError,
    Client,
    ClientClosedError,
    ClientError,
    ClientState,
    ConnectionLossError,
    EventType,
    InvalidArgumentError,
    NoServerError,
    SessionToken,
    Transaction,
    WatchEvent,
)
from quorum.wire import replies
from quorum.wire.protocol import OpCode
from tests.support.clients import DEADLINE_S, States
from tests.support.scripted_server import TIMEOUT_MS, Peer, make_client, serve_until_closed, server
from tests.support.story_broker import InOrder


async def answer_sync(peer: Peer) -> None:
    """Answer one request, which must be a sync."""
    xid, op, _ = await peer.request()
    assert op == OpCode.SYNC
    peer.writer.write(replies.encode_path(xid, 1, "/"))


async def deaf(peer: Peer) -> None:
    await peer.gone()


@pytest.fixture
async def reported() -> list[dict[str, Any]]:
    """What the event loop's exception handler is told."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    return told


@pytest.fixture
async def skip_ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let the event loop find that so many seconds have passed, as after a stall of the process."""
    loop = asyncio.get_running_loop()
    time, skipped_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: time() + sum(skipped_s))
    return skipped_s.append


# -- handshakes ----------------------------------------------------------------------------------------------


async def test_an_answer_that_comes_in_the_turn_in_which_time_is_up_is_taken(
    skip_ahead: Callable[[float], None],
) -> None:
    """The process stood still while the answer was on its way; both are seen in one turn of the loop."""

    async def late(peer: Peer) -> None:
        await peer.handshake()
        skip_ahead(2 * TIMEOUT_MS / 1000)
        await answer_sync(peer)
        await peer.answer_closing()

    async with server(late) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        async with asyncio.timeout(DEADLINE_S):
            await client.sync()
        assert states.seen == [ClientState.CONNECTED]
        await client.close()


async def test_a_start_whose_patience_ends_in_the_turn_of_the_answer_succeeds(
    skip_ahead: Callable[[float], None],
) -> None:
    async def late(peer: Peer) -> None:
        await peer.handshake()
        skip_ahead(2 * TIMEOUT_MS / 1000)
        await peer.answer_closing()

    async with server(late) as hosts:
        client = make_client(hosts)
        await client.start(patience_ms=2 * TIMEOUT_MS)
        assert client.state is ClientState.CONNECTED
        await client.close()


async def test_two_servers_in_a_row_that_never_answer_are_left_for_a_third() -> None:
    async with server(deaf) as first, server(deaf) as second, server(serve_until_closed) as third:
        client = Client(f"{first},{second},{third}", session_timeout_ms=TIMEOUT_MS, rng=InOrder())
        await client.start(patience_ms=5 * TIMEOUT_MS)
        await client.close()


async def test_a_server_that_never_answers_is_named_with_that_reason() -> None:
    async with server(deaf, deaf) as hosts:
        with pytest.raises(NoServerError) as caught:
            await make_client(hosts).start(patience_ms=1.8 * TIMEOUT_MS)
    assert f"{hosts}: no answer to the handshake within {TIMEOUT_MS} ms" in caught.value.message


# -- closing -------------------------------------------------------------------------------------------------


async def test_closing_ends_a_start_under_way_and_forbids_a_later_one() -> None:
    arrived = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.frame()
        arrived.set()
        await peer.gone()

    async with server(silent) as hosts:
        client = Client(hosts, session_timeout_ms=60_000)
        starting = asyncio.ensure_future(client.start(patience_ms=600_000))
        async with asyncio.timeout(DEADLINE_S):
            await arrived.wait()
            await client.close()
            with pytest.raises(ClientClosedError):
                await starting
            with pytest.raises(ClientClosedError):
                await client.start(patience_ms=600_000)


async def test_a_second_close_waits_for_the_first_and_costs_no_write_its_reply() -> None:
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.handshake()
        written, op, _ = await peer.request()
        assert op == OpCode.SYNC
        closing, op, _ = await peer.request()
        assert op == OpCode.CLOSE_SESSION
        asked.set()
        async with asyncio.timeout(DEADLINE_S):
            await let_go.wait()
        peer.writer.write(replies.encode_path(written, 1, "/") + replies.encode_header(closing, 2, 0))

    async with server(slow) as hosts:
        client = make_client(hosts)
        await client.start()
        writing = asyncio.ensure_future(client.sync())
        await asyncio.sleep(0)
        first = asyncio.ensure_future(client.close())
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            second = asyncio.ensure_future(client.close(keep_session=True))
            await asyncio.sleep(0)
            assert not second.done()
            let_go.set()
            await asyncio.gather(first, second)
        assert await writing == "/"
        assert client.session_token.last_zxid == 2
        await client.close()


async def test_a_second_close_ends_with_a_first_that_is_given_up() -> None:
    asked = asyncio.Event()

    async def mute(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        asked.set()
        await peer.gone()

    async with server(mute) as hosts:
        client = make_client(hosts)
        await client.start()
        first = asyncio.ensure_future(client.close())
        second = asyncio.ensure_future(client.close())
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            first.cancel()
            await second
        with pytest.raises(asyncio.CancelledError):
            await first


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_closed_client_sends_nothing_more_to_a_server_that_reads_again(given_up: bool) -> None:
    """What no buffer of the connection took is dropped with it, and with it the connection."""
    calls_count, value = 40, bytes(1_000_000)
    closed = asyncio.Event()
    received = []

    async def still(peer: Peer) -> None:
        await peer.handshake()
        async with asyncio.timeout(DEADLINE_S):
            await closed.wait()
        received.append(await peer.rest_count())

    async with server(still) as hosts:
        client = make_client(hosts)
        await client.start()
        calls = [asyncio.ensure_future(client.set("/a", value)) for _ in range(calls_count)]
        for _turn in ("each call sends", "the connection takes what was sent"):
            await asyncio.sleep(0)
        if given_up:
            closing = asyncio.ensure_future(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        else:
            await client.close(keep_session=True)
        closed.set()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLossError)
            assert not outcome.definite
    assert received[0] < calls_count * len(value)


# -- refusals on a later connection --------------------------------------------------------------------------


async def test_credentials_refused_later_are_told_and_offered_to_the_next_server(
    reported: list[dict[str, Any]],
) -> None:
    async def answer_auth(peer: Peer, err: int) -> None:
        _, op, body = await peer.request()
        assert (op, body[-10:]) == (OpCode.AUTH, b"bob:secret")
        peer.writer.write(replies.encode_header(-4, 0, err))

    async def accepting(peer: Peer) -> None:
        await peer.handshake()
        await answer_auth(peer, 0)

    async def refusing(peer: Peer) -> None:
        await peer.handshake()
        await answer_auth(peer, -115)
        # ZooKeeper ends the connection; a client that goes on without its rights would not notice otherwise.
        await peer.gone()

    async def agreeing(peer: Peer) -> None:
        await peer.handshake()
        await answer_auth(peer, 0)
        await answer_sync(peer)
        await peer.answer_closing()

    async with server(accepting, refusing, refusing, agreeing) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await client.add_auth("digest", b"bob:secret")
        await states.wait_for(*(3 * [ClientState.SUSPENDED, ClientState.CONNECTED]))
        await client.sync()
        await client.close()
    assert [type(context["exception"]) for context in reported] == [AuthFailedError] * 2
    assert "credentials of digest that were accepted before" in reported[0]["message"]


async def test_a_call_on_a_connection_that_refuses_old_credentials_says_so(
    reported: list[dict[str, Any]],
) -> None:
    async def accepting(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        peer.writer.write(replies.encode_header(-4, 0, 0))

    async def refusing(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        await peer.request()
        peer.writer.write(replies.encode_header(-4, 0, -115))
        await peer.gone()

    async with server(accepting, refusing) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await client.add_auth("digest", b"bob:secret")
        await states.wait_for(ClientState.SUSPENDED)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConnectionLossError, match="credentials of digest"):
                await client.sync()
        await client.close(keep_session=True)
    assert len(reported) == 1


async def test_watches_that_a_server_refuses_to_arm_again_are_armed_at_another() -> None:
    rearmed: list[int] = []

    async def first(peer: Peer) -> None:
        await peer.handshake()
        xid, _, _ = await peer.request()
        peer.writer.write(replies.encode_stat(xid, 5, bytes(68)))

    async def rearm(peer: Peer) -> None:
        await peer.handshake()
        xid, op, body = await peer.request()
        assert (xid, op) == (-8, OpCode.SET_WATCHES)
        rearmed.append(int.from_bytes(body[:8], "big"))

    async def refusing(peer: Peer) -> None:
        await rearm(peer)
        await peer.request()
        peer.writer.write(replies.encode_header(-8, 9, -127))
        await peer.gone()

    async def taking(peer: Peer) -> None:
        await rearm(peer)
        # The refusal has told these watches nothing, whatever transaction it named.
        peer.writer.write(replies.encode_header(-8, 9, 0))
        peer.writer.write(replies.encode_watch_event(10, EventType.NODE_DATA_CHANGED, "/a"))
        await peer.answer_closing()

    told = asyncio.Event()
    async with server(first, refusing, taking) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await client.exists("/a", watch=lambda _: told.set())
        await states.wait_for(ClientState.SUSPENDED)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(
                ConnectionLossError, match="refused to arm the watches again, with THROTTLEDOP"
            ):
                await client.sync()
            await told.wait()
        await client.close()
    assert rearmed == [5, 5]


# -- numbers that fit into no request ------------------------------------------------------------------------

CALLS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "set /a: version = 2147483648": lambda client: client.set("/a", b"", 2**31),
    "delete /a: version = -2147483649": lambda client: client.delete("/a", -(2**31) - 1),
    "create_ttl /a: ttl_ms = 9223372036854775808": lambda client: client.create_ttl("/a", b"", 2**63),
    "set_acl /a: aversion = 2147483648": lambda client: client.set_acl("/a", [], 2**31),
    "set_acl /a: permissions = 4294967295": lambda client: client.set_acl(
        "/a", [AccessEntry(2**32 - 1, "world", "anyone")]
    ),
    "create /a: mode = 4294967296": lambda client: client.create("/a", b"", 2**32),  # type: ignore[arg-type]
    "set /a: version = 1.5": lambda client: client.set("/a", b"", 1.5),  # type: ignore[arg-type]
}
PARTS: dict[str, Callable[[Transaction], object]] = {
    "set /a: version = 2147483648": lambda multi: multi.set("/a", b"", 2**31),
    "check /a: version = 2147483648": lambda multi: multi.check("/a", 2**31),
    "delete /a: version = 2147483648": lambda multi: multi.delete("/a", 2**31),
    "create_ttl /a: ttl_ms = -9223372036854775809": lambda multi: multi.create_ttl("/a", b"", -(2**63) - 1),
    "create2 /a: mode = 4294967296": lambda multi: multi.create2("/a", b"", 2**32),  # type: ignore[arg-type]
}


async def test_a_number_that_no_request_can_carry_is_named_and_nothing_is_sent() -> None:
    async with server(serve_until_closed) as hosts:
        client = make_client(hosts)
        await client.start()
        for message, call in CALLS.items():
            with pytest.raises(InvalidArgumentError, match=message) as caught:
                await call(client)
            assert isinstance(caught.value, ClientError)
            assert "give a whole number from" in caught.value.remedy
        # A code that only the codec knows.
        with pytest.raises(InvalidArgumentError, match="remove_watches /a"):
            await client.remove_watches("/a", 2**31)  # type: ignore[arg-type]
        transaction = Transaction()
        for message, append in PARTS.items():
            with pytest.raises(InvalidArgumentError, match=message):
                append(transaction)
        assert len(transaction) == 0
        await client.close()


@pytest.mark.parametrize(
    ("named", "settings"),
    [
        ("session_timeout_ms = 3000000000", {"session_timeout_ms": 3_000_000_000}),
        ("session_timeout_ms = 0", {"session_timeout_ms": 0}),
        ("resume.session_id = 9223372036854775808", {"resume": SessionToken(2**63, bytes(16), 0)}),
        ("resume.last_zxid = 9223372036854775808", {"resume": SessionToken(1, bytes(16), 2**63)}),
    ],
)
async def test_a_client_whose_handshake_could_not_be_sent_is_not_made(
    named: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgumentError, match=named) as caught:
        Client("127.0.0.1:1", **settings)
    assert isinstance(caught.value, ValueError)


# -- a client that fails by itself ---------------------------------------------------------------------------


class FailingRandom(InOrder):
    """A source of randomness that fails as soon as a client has tried each of its servers."""

    def random(self) -> float:
        """Fail as a defect would."""
        raise LookupError("a defect")


async def test_a_client_that_fails_while_it_starts_says_so_at_once(reported: list[dict[str, Any]]) -> None:
    async with server() as hosts:
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=FailingRandom())
        calling = asyncio.ensure_future(client.sync())
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ClientClosedError, match="it stopped itself: LookupError: a defect"):
                await client.start(patience_ms=600_000)
            with pytest.raises(ClientClosedError, match="LookupError"):
                await calling
        assert client.state is ClientState.CLOSED
        with pytest.raises(ClientClosedError, match="LookupError"):
            await client.sync()
        await client.close()
    assert [str(context["exception"]) for context in reported] == ["a defect"]


async def test_a_client_that_fails_later_leaves_no_call_waiting(reported: list[dict[str, Any]]) -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()

    async with server(first) as hosts:
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=FailingRandom())
        states = States(client)
        lost: list[WatchEvent] = []
        await client.start()
        await states.wait_for(ClientState.SUSPENDED, ClientState.CLOSED)
        with pytest.raises(ClientClosedError, match="LookupError"):
            await client.get("/a", watch=lost.append)
    assert len(reported) == 1


async def test_a_client_whose_task_is_cancelled_by_others_is_closed() -> None:
    """As at the end of asyncio.run, which cancels every task."""
    asked = asyncio.Event()

    async def mute(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        asked.set()
        await peer.gone()

    async with server(mute) as hosts:
        client = make_client(hosts)
        before = asyncio.all_tasks()
        await client.start()
        (runner,) = (task for task in asyncio.all_tasks() - before if "_run" in repr(task.get_coro()))
        calling = asyncio.ensure_future(client.sync())
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            runner.cancel()
            with pytest.raises(ConnectionLossError, match="its task was cancelled") as caught:
                await calling
        assert not caught.value.definite
        assert client.state is ClientState.CLOSED
