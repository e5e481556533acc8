"""The client against a server that misbehaves on purpose: broken frames, silence, wrong replies, cuts.

The server is a script over real sockets: tests/support/scripted_server.py.
"""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import AsyncExitStack

import pytest

from quorum.client import (
    Client,
    ClientClosedError,
    ClientState,
    ConnectionLossError,
    EventType,
    InvalidArgumentError,
    NoServerError,
    ServerError,
    SessionExpiredError,
    WatchEvent,
)
from quorum.client.watches import WatchRegistry
from quorum.wire import replies
from quorum.wire.protocol import OpCode
from quorum.wire.requests import PING_FRAME, ConnectRequest, SetWatches, decode_connect, decode_set_watches
from tests.support.clients import DEADLINE_S, States, starting_at
from tests.support.scripted_server import (
    PASSWORD,
    SESSION_ID,
    TIMEOUT_MS,
    Peer,
    make_client,
    serve_until_closed,
    server,
)


async def lost_call(client: Client) -> ConnectionLossError:
    with pytest.raises(ConnectionLossError) as caught:
        await client.sync("/a")
    return caught.value


async def test_a_reconnect_presents_the_session_and_the_last_zxid() -> None:
    seen: list[ConnectRequest] = []

    async def first(peer: Peer) -> None:
        seen.append(await peer.handshake())
        xid, _, _ = await peer.request()
        peer.writer.write(replies.encode_path(xid, 77, "/a"))
        # An event does not move what the client has seen: others of its transaction may be missing.
        peer.writer.write(replies.encode_watch_event(80, EventType.NODE_CREATED, "/a"))

    async def second(peer: Peer) -> None:
        seen.append(await peer.handshake())
        await peer.answer_closing()

    async with server(first, second) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        assert await client.sync("/a") == "/a"
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        await client.close()
    assert seen[0] == ConnectRequest(0, 0, TIMEOUT_MS, 0, bytes(16), read_only=False)
    assert seen[1] == ConnectRequest(0, 77, TIMEOUT_MS, SESSION_ID, PASSWORD, read_only=False)


async def test_armed_watches_are_sent_again_first_and_fired_ones_are_not() -> None:
    rearmed: list[SetWatches] = []

    async def first(peer: Peer) -> None:
        await peer.handshake()
        for err in (0, -101, 0, 0):
            xid, op, _ = await peer.request()
            if err:
                peer.writer.write(replies.encode_header(xid, 5, err))
            elif op == OpCode.GET_CHILDREN:
                peer.writer.write(replies.encode_children(xid, 5, []))
            else:
                peer.writer.write(replies.encode_stat(xid, 5, bytes(68)))
        peer.writer.write(replies.encode_watch_event(6, EventType.NODE_DATA_CHANGED, "/fired"))

    async def second(peer: Peer) -> None:
        await peer.handshake()
        xid, op, body = await peer.request()
        assert (xid, op) == (-8, OpCode.SET_WATCHES)
        rearmed.append(decode_set_watches(body, 0, len(body)))
        peer.writer.write(replies.encode_watch_event(9, EventType.NODE_CREATED, "/missing"))
        peer.writer.write(replies.encode_header(-8, 9, 0))
        await peer.answer_closing()

    events: list[WatchEvent] = []
    async with server(first, second) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await asyncio.gather(
            client.exists("/there", watch=events.append),
            client.exists("/missing", watch=events.append),
            client.get_children("/kids", watch=events.append),
            client.exists("/fired", watch=events.append),
        )
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        await client.close()
    assert rearmed == [SetWatches(5, ["/there"], ["/missing"], ["/kids"])]
    assert events[:2] == [
        WatchEvent(EventType.NODE_DATA_CHANGED, "/fired", 6),
        WatchEvent(EventType.NODE_CREATED, "/missing", 9),
    ]
    # Closing ends the session, and with it what was still armed.
    assert [event.path for event in events[2:]] == ["/there", "/kids"]
    assert {event.event_type for event in events[2:]} == {EventType.NONE}


async def test_watches_whose_part_was_not_answered_are_armed_from_where_they_were_last_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part that was answered raises what the client has seen; the others would miss what came before."""
    monkeypatch.setattr(WatchRegistry.rearm_requests, "__defaults__", (6,))
    rearmed: list[list[SetWatches]] = []

    async def first(peer: Peer) -> None:
        await peer.handshake()
        for _ in range(2):
            xid, _, _ = await peer.request()
            peer.writer.write(replies.encode_stat(xid, 5, bytes(68)))

    async def rearm(peer: Peer, answers: int) -> None:
        await peer.handshake()
        rearmed.append([])
        for number in range(2):
            xid, op, body = await peer.request()
            assert (xid, op) == (-8, OpCode.SET_WATCHES)
            rearmed[-1].append(decode_set_watches(body, 0, len(body)))
            if number < answers:
                peer.writer.write(replies.encode_header(-8, 9, 0))

    async def second(peer: Peer) -> None:
        await rearm(peer, 1)

    async def third(peer: Peer) -> None:
        await rearm(peer, 2)

    async def fourth(peer: Peer) -> None:
        await rearm(peer, 2)
        await peer.answer_closing()

    async with server(first, second, third, fourth) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await asyncio.gather(client.exists("/a", watch=print), client.exists("/b", watch=print))
        await states.wait_for(*(3 * [ClientState.SUSPENDED, ClientState.CONNECTED]))
        await client.close()
    assert [[part.relative_zxid for part in parts] for parts in rearmed] == [[5, 5], [5, 5], [9, 9]]


async def test_a_lost_reply_is_indefinite_and_what_never_left_is_definite() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()

    async with server(first, serve_until_closed) as hosts:
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, requests_max=2)
        await client.start()
        states = States(client)
        outcomes = await asyncio.gather(*(client.sync(f"/{n}") for n in range(4)), return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, ConnectionLossError)]
        assert [error.definite for error in errors] == [False, False, True, True]
        assert "sync /0" in str(errors[0])
        await states.wait_for(ClientState.CONNECTED)
        await client.close()


async def test_what_is_called_without_a_connection_waits_for_the_next() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()

    async def second(peer: Peer) -> None:
        await peer.handshake()
        xid, op, _ = await peer.request()
        assert op == OpCode.SYNC
        peer.writer.write(replies.encode_path(xid, 1, "/a"))
        await peer.answer_closing()

    async with server(first, second) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await states.wait_for(ClientState.SUSPENDED)
        assert await client.sync("/a") == "/a"
        await client.close()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        replies.encode_header(4711, 0, 0),
        (22).to_bytes(4, "big") + replies.encode_header(1, 0, 0)[4:] + (100).to_bytes(4, "big") + b"/x",
        replies.encode_watch_event(1, 42, "/a"),
        replies.encode_header(-1, 0, 0),
    ],
    ids=["empty", "negative", "huge", "short header", "foreign xid", "cut body", "unknown event", "no event"],
)
async def test_a_malformed_reply_ends_the_connection_and_not_the_client(rubbish: bytes) -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        peer.writer.write(rubbish)
        await peer.gone()

    async with server(first, serve_until_closed) as hosts:
        client = make_client(hosts)
        await client.start()
        states = States(client)
        error = await lost_call(client)
        assert not error.definite
        assert "the server sent" in str(error)
        await states.wait_for(ClientState.CONNECTED)
        await client.close()


async def test_frames_may_arrive_in_any_pieces() -> None:
    names = [f"child-{number}" for number in range(2000)]

    async def scene(peer: Peer) -> None:
        await peer.handshake()
        for piece in (1, 3, 1000, 100_000):
            xid, _, _ = await peer.request()
            answer = replies.encode_children(xid, 1, names if piece > 3 else names[:3])
            for start in range(0, len(answer), piece):
                peer.writer.write(answer[start : start + piece])
                await peer.writer.drain()
        await peer.answer_closing()

    async with server(scene) as hosts:
        client = make_client(hosts)
        await client.start()
        for expected in (names[:3], names[:3], names, names):
            assert await client.get_children("/a") == expected
        await client.close()


async def test_a_silent_server_is_given_up_within_two_thirds_of_the_timeout() -> None:
    async def silent(peer: Peer) -> None:
        await peer.handshake()
        await peer.gone()

    async with server(silent, serve_until_closed) as hosts:
        client = make_client(hosts)
        await client.start()
        states = States(client)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        error = await lost_call(client)
        assert not error.definite
        assert "silent" in str(error)
        assert 0.6 * TIMEOUT_MS / 1000 <= loop.time() - begun <= TIMEOUT_MS / 1000
        await states.wait_for(ClientState.CONNECTED)
        await client.close()


async def test_an_idle_client_pings_often_enough_to_live() -> None:
    pings: list[float] = []
    enough = asyncio.Event()

    async def scene(peer: Peer) -> None:
        await peer.handshake()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while len(pings) < 4:
            assert await peer.frame() == PING_FRAME[4:]
            pings.append(loop.time() - begun)
            peer.writer.write(replies.encode_header(-2, 3, 0))
        enough.set()
        await peer.answer_closing()

    async with server(scene) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        async with asyncio.timeout(DEADLINE_S):
            await enough.wait()
        assert states.seen == [ClientState.CONNECTED]
        await client.close()
        assert client.session_token.last_zxid == 99
    assert pings[-1] >= 3 * TIMEOUT_MS / 3000


async def test_a_server_that_accepts_and_never_answers_is_left_for_another() -> None:
    async def deaf(peer: Peer) -> None:
        await peer.gone()

    async with server(deaf) as first, server(serve_until_closed) as second:
        hosts = f"{first},{second}"
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=starting_at(hosts, first))
        await client.start()
        await client.close()


async def test_a_server_that_refuses_because_it_is_behind_is_left_for_another() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()
        xid, _, _ = await peer.request()
        peer.writer.write(replies.encode_path(xid, 500, "/a"))
        await peer.writer.drain()

    async def behind(peer: Peer) -> None:
        frame = await peer.frame()
        assert decode_connect(frame, 0, len(frame)).last_zxid_seen == 500

    async with server(first, behind, behind, serve_until_closed) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await client.sync("/a")
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        assert ClientState.LOST not in states.seen
        await client.close()


async def test_servers_that_take_the_session_and_drop_it_are_not_asked_at_full_speed() -> None:
    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        await peer.handshake()
        # A frame after the handshake is no proof of health yet.
        writer.write(replies.encode_header(-2, 1, 0))
        writer.close()

    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        listeners = [
            await stack.enter_async_context(await asyncio.start_server(drop, "127.0.0.1", 0))
            for _ in range(3)
        ]
        hosts = ",".join(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}" for listener in listeners)
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=random.Random(1))
        states = States(client)
        begun = loop.time()
        await client.start()
        # Each round of three waits longer than the one before: at least 25, 50, 100 and 200 ms.
        await states.wait_for(*[ClientState.CONNECTED] * 13)
        assert loop.time() - begun >= (25 + 50 + 100 + 200) / 1000
        await client.close(keep_session=True)


async def test_a_refused_session_is_lost_for_good_and_unsent_calls_fail_definitely() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()

    async def second(peer: Peer) -> None:
        await peer.handshake(session_id=0, timeout_ms=0)

    async with server(first, second) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await states.wait_for(ClientState.SUSPENDED)
        with pytest.raises(SessionExpiredError) as caught:
            await client.sync("/a")
        assert caught.value.definite
        assert client.state is ClientState.LOST
        await client.close()


async def test_another_session_than_the_one_to_resume_is_not_taken() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()

    async def impostor(peer: Peer) -> None:
        await peer.handshake(session_id=SESSION_ID + 1)
        await peer.gone()

    async with server(first, impostor, serve_until_closed) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        assert client.session_id == SESSION_ID
        await client.close()


async def test_nobody_listening_is_an_error_with_place_reason_and_remedy() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{free.getsockname()[1]}"
        client = make_client(hosts)
        with pytest.raises(NoServerError) as caught:
            await client.start(patience_ms=200)
    assert hosts in caught.value.message
    assert "refused" in caught.value.message or "Connect call failed" in caught.value.message
    assert caught.value.remedy
    assert not caught.value.definite


async def test_closing_while_reconnecting_does_not_wait() -> None:
    arrived = asyncio.Event()

    async def first(peer: Peer) -> None:
        await peer.handshake()

    async def deaf(peer: Peer) -> None:
        await peer.frame()
        arrived.set()
        await peer.gone()

    async with server(first, deaf) as hosts:
        client = make_client(hosts)
        states = States(client)
        await client.start()
        await states.wait_for(ClientState.SUSPENDED)
        waiting = asyncio.ensure_future(client.sync("/a"))
        async with asyncio.timeout(DEADLINE_S):
            await arrived.wait()
        await client.close()
        with pytest.raises(ClientClosedError):
            await waiting


async def test_closing_can_be_given_up_and_leaves_nothing_behind() -> None:
    asked = asyncio.Event()

    async def mute(peer: Peer) -> None:
        await peer.handshake()
        _, op, _ = await peer.request()
        assert op == OpCode.CLOSE_SESSION
        asked.set()
        await peer.gone()

    async with server(mute) as hosts:
        client = make_client(hosts)
        await client.start()
        closing = asyncio.ensure_future(client.close())
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClientClosedError):
            await client.sync()


async def test_a_host_name_that_cannot_be_is_left_for_another() -> None:
    async with server(serve_until_closed) as good:
        hosts = f"{'x' * 70}.invalid:1,{good}"
        client = Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=starting_at(hosts, hosts))
        await client.start()
        await client.close()


async def test_a_failing_callback_is_reported_and_disturbs_nobody() -> None:
    async def scene(peer: Peer) -> None:
        await peer.handshake()
        for _ in range(2):
            xid, _, _ = await peer.request()
            peer.writer.write(replies.encode_stat(xid, 1, bytes(68)))
        peer.writer.write(replies.encode_watch_event(2, EventType.NODE_DELETED, "/a"))
        xid, _, _ = await peer.request()
        peer.writer.write(replies.encode_path(xid, 2, "/a"))
        await peer.answer_closing()

    def fail(_event: WatchEvent) -> None:
        raise ValueError("a bug of the caller")

    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    seen: list[WatchEvent] = []
    async with server(scene) as hosts:
        client = make_client(hosts)
        await client.start()
        await client.exists("/a", watch=fail)
        await client.exists("/a", watch=seen.append)
        assert await client.sync("/a") == "/a"
        await client.close()
    assert [event.zxid for event in seen] == [2]
    assert [str(context["exception"]) for context in reported] == ["a bug of the caller"]


async def test_what_no_request_can_carry_is_refused_here() -> None:
    async with server(serve_until_closed) as hosts:
        client = make_client(hosts)
        await client.start()
        with pytest.raises(InvalidArgumentError, match="UTF-8"):
            await client.create("/\ud800")
        await client.close()


async def test_an_error_of_the_server_is_typed_by_its_code() -> None:
    async def scene(peer: Peer) -> None:
        await peer.handshake()
        for err in (-127, -9999):
            xid, _, _ = await peer.request()
            peer.writer.write(replies.encode_header(xid, 1, err))
        await peer.answer_closing()

    async with server(scene) as hosts:
        client = make_client(hosts)
        await client.start()
        for definite, named in ((True, "THROTTLEDOP"), (False, "-9999")):
            with pytest.raises(ServerError, match=named) as caught:
                await client.delete("/a")
            assert caught.value.definite is definite
        await client.close()


@pytest.mark.parametrize("name", ["session_timeout_ms", "requests_max", "request_bytes_max"])
async def test_numbers_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Client("127.0.0.1:1", **{name: 0})  # type: ignore[arg-type]
