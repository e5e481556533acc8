"""The client of a broker's listener against servers that behave, refuse, lie or fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controller.wire.connection import (
    IN_FLIGHT_MAX,
    BrokerAuthenticationError,
    BrokerConnection,
    BrokerConnectionLostError,
    BrokerUnreachableError,
    while_current,
)
from controller.wire.frames import parse_request_header
from controller.wire.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE, SaslGate
from controller.wire.scram import ScramServer
from tests.support.frames import pack_response

CLUSTER = "cluster-a"
SECRET = "a secret that only brokers know"
ECHO = 4
TIMEOUT_MS = 10_000

#: (correlation id, body, writer): what a server does with a request behind the gate
Behaviour = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]


async def echo(correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(pack_response(correlation_id, b"echo " + body, flexible=True))


class Server:
    """A broker listener: the gate, and behind it one behaviour."""

    def __init__(self, behaviour: Behaviour, secrets: tuple[str, ...] = (SECRET,)) -> None:
        self.behaviour = behaviour
        self.scram = ScramServer(secrets, CLUSTER)
        self.refusals: list[str] = []
        self.ended = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gate = SaslGate(self.scram)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header = parse_request_header(frame, lambda key, _version: key != SASL_HANDSHAKE)
                body = frame[header.body_offset :]
                if gate.authenticated:
                    await self.behaviour(header.correlation_id, body, writer)
                    continue
                answers = {
                    SASL_HANDSHAKE: gate.handle_handshake,
                    SASL_AUTHENTICATE: gate.handle_authenticate,
                }
                answer = answers[header.api_key](body)
                flexible = header.api_key == SASL_AUTHENTICATE
                writer.write(pack_response(header.correlation_id, answer.body, flexible=flexible))
                if answer.close:
                    self.refusals.append(gate.refusal)
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.ended.set()

    async def open(
        self, *, secret: str = SECRET, cluster_id: str = CLUSTER, timeout_ms: int = TIMEOUT_MS
    ) -> BrokerConnection:
        return await BrokerConnection.open(
            "127.0.0.1",
            self.port,
            secrets=[secret],
            cluster_id=cluster_id,
            client_id="test",
            timeout_ms=timeout_ms,
        )


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@asynccontextmanager
async def serving(behaviour: Behaviour, secrets: tuple[str, ...] = (SECRET,)) -> AsyncIterator[Server]:
    server = Server(behaviour, secrets)
    async with listening(server.serve) as server.port:
        yield server


async def ask(connection: BrokerConnection, body: bytes, *, timeout_ms: int = TIMEOUT_MS) -> memoryview:
    return await connection.request(ECHO, 6, body, flexible=True, timeout_ms=timeout_ms)


async def test_requests_are_answered_after_the_proof() -> None:
    async with serving(echo, ("the old secret", SECRET)) as server:
        connection = await server.open()
        answers = await asyncio.gather(*(ask(connection, b"%d" % each) for each in range(3 * IN_FLIGHT_MAX)))
        assert answers == [b"echo %d" % each for each in range(3 * IN_FLIGHT_MAX)]
        large = b"x" * 5_000_000
        assert await ask(connection, large) == b"echo " + large
        connection.close()
        assert connection.closed
        await server.ended.wait()


async def test_a_wrong_secret_is_refused_with_kafkas_code_and_closed() -> None:
    async with serving(echo) as server:
        with pytest.raises(BrokerAuthenticationError) as caught:
            await server.open(secret="a guess")
        await server.ended.wait()
    text = str(caught.value)
    assert f"authentication with broker 127.0.0.1:{server.port} failed" in text
    assert "SASL_AUTHENTICATION_FAILED" in text
    assert "the client does not know the peer secret" in text
    assert caught.value.remedy == "prove the peer secret that the cluster's brokers have"
    assert "a guess" not in text
    assert SECRET not in text
    assert caught.value.definite
    assert server.refusals == [
        "the client does not know the peer secret (give all brokers of the cluster the same peer_secret_file)"
    ]


async def test_a_broker_of_another_cluster_is_refused_by_name() -> None:
    async with serving(echo) as server:
        with pytest.raises(BrokerAuthenticationError, match="the broker is of cluster 'cluster-a'"):
            await server.open(cluster_id="cluster-b")
        await server.ended.wait()


async def test_a_listener_with_another_mechanism_is_refused() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        header = parse_request_header(frame, lambda _key, _version: False)
        writer.write(pack_response(header.correlation_id, b"\x00\x21\x00\x00\x00\x00", flexible=False))
        writer.close()

    server = Server(echo)
    async with listening(serve) as server.port:
        with pytest.raises(BrokerAuthenticationError, match="UNSUPPORTED_SASL_MECHANISM"):
            await server.open()


async def test_nobody_there_is_a_definite_error() -> None:
    server = Server(echo)
    async with listening(server.serve) as server.port:
        pass
    with pytest.raises(BrokerUnreachableError, match="cannot be reached") as caught:
        await server.open()
    assert caught.value.definite
    assert caught.value.retriable


async def test_a_silent_listener_is_given_up_in_time() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    server = Server(echo)
    async with listening(serve) as server.port:
        with pytest.raises(BrokerUnreachableError, match="does not answer within 50 ms"):
            await server.open(timeout_ms=50)
        await gone.wait()


async def test_a_silent_listener_is_given_up_once_another_broker_is_to_be_asked() -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await reader.read()
        writer.close()
        gone.set()

    server = Server(echo)
    async with listening(serve) as server.port:
        opening = server.open(timeout_ms=3_600_000)
        with pytest.raises(BrokerConnectionLostError, match="another broker is to be asked"):
            await while_current(opening, lambda: not came.is_set())
        await gone.wait()
    assert await while_current(asyncio.sleep(0, "an answer"), lambda: True) == "an answer"


async def test_a_listener_that_closes_during_authentication_is_unreachable() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = Server(echo)
    async with listening(serve) as server.port:
        with pytest.raises(BrokerUnreachableError, match=r"during authentication|cannot be reached"):
            await server.open()


async def test_a_connection_that_ends_leaves_an_unknown_outcome() -> None:
    async def hang_up(_correlation_id: int, _body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()
        raise ConnectionResetError

    async with serving(hang_up) as server:
        connection = await server.open()
        outcomes = await asyncio.gather(*(ask(connection, b"x") for _ in range(3)), return_exceptions=True)
        assert all(isinstance(each, BrokerConnectionLostError) and not each.definite for each in outcomes)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError) as caught:
            await ask(connection, b"y")
        assert caught.value.definite


async def test_no_answer_in_time_ends_the_connection() -> None:
    async def ignore(_correlation_id: int, _body: bytes, _writer: asyncio.StreamWriter) -> None:
        pass

    async with serving(ignore) as server:
        connection = await server.open()
        patient = asyncio.create_task(ask(connection, b"patient"))
        with pytest.raises(BrokerConnectionLostError, match="did not answer a request within 50 ms"):
            await ask(connection, b"x", timeout_ms=50)
        with pytest.raises(BrokerConnectionLostError, match="did not answer a request within 50 ms"):
            await patient
        assert connection.closed
        await server.ended.wait()


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01x",
        b"\x00\x00\x00\x05\x7f\xff\xff\xff\x00",
        b"\x00\x00\x00\x04{id}",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_broker_that_breaks_the_protocol_ends_the_connection(frame: bytes) -> None:
    async def lie(correlation_id: int, _body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(frame.replace(b"{id}", correlation_id.to_bytes(4, "big")))

    async with serving(lie) as server:
        connection = await server.open()
        with pytest.raises(BrokerConnectionLostError, match="does not follow the protocol"):
            await ask(connection, b"x")
        assert connection.closed
        await server.ended.wait()


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(correlation_id: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await go_on.wait()
        await echo(correlation_id, body, writer)

    async with serving(answer_late) as server:
        connection = await server.open()
        impatient = asyncio.create_task(ask(connection, b"first"))
        await arrived.wait()
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        go_on.set()
        assert bytes(await ask(connection, b"second")) == b"echo second"
        connection.close()
        await server.ended.wait()


async def test_requests_beyond_the_bound_wait_and_then_fail_unsent() -> None:
    received: list[bytes] = []

    async def keep(_correlation_id: int, body: bytes, _writer: asyncio.StreamWriter) -> None:
        received.append(body)

    async with serving(keep) as server:
        connection = await server.open()
        waiting = [asyncio.create_task(ask(connection, b"x")) for _ in range(IN_FLIGHT_MAX)]
        await asyncio.wait(waiting, timeout=0.01)
        with pytest.raises(BrokerUnreachableError, match="without an answer") as caught:
            await ask(connection, b"too many", timeout_ms=50)
        assert caught.value.definite
        assert not connection.closed
        connection.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, BrokerConnectionLostError) for each in outcomes)
        await server.ended.wait()
        assert received == [b"x"] * IN_FLIGHT_MAX


def test_the_gate_refuses_requests_out_of_turn() -> None:
    from controller.wire import sasl

    scram = ScramServer([SECRET], CLUSTER)
    answer = SaslGate(scram).handle_authenticate(sasl.authenticate_request(b"n,,n=quorate,r=x"))
    assert answer.close
    assert answer.body[:2] == b"\x00\x22"
    gate = SaslGate(scram)
    assert not gate.handle_handshake(sasl.handshake_request()).close
    assert gate.handle_handshake(sasl.handshake_request()).close
    assert not gate.authenticated
    plain = SaslGate(scram).handle_handshake(b"\x00\x05PLAIN")
    assert plain.close
    assert plain.body[:2] == b"\x00\x21"
