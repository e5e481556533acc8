"""SASL of the client against servers that follow a script: who is believed, and what a session survives."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from quorum.client import Client, ClientState, NoServerError, SaslRefusedError
from quorum.client.sasl import DigestExchange
from quorum.config.sasl_users import user_line
from quorum.errors import ProtocolError
from quorum.server.sasl import challenge, check
from quorum.wire.protocol import OpCode
from quorum.wire.replies import encode_sasl
from quorum.wire.requests import decode_sasl
from tests.support.scripted_server import SESSION_ID, TIMEOUT_MS, Peer, server

HASH = user_line("al,ice", 'a "b" \\').rpartition(":")[2]


class Known(NamedTuple):
    name: str = "al,ice"
    secret: str = 'a "b" \\'

    def password(self) -> str:
        return self.secret


def hash_of(name: str) -> str | None:
    return HASH if name == "al,ice" else None


async def token(peer: Peer) -> tuple[int, bytes]:
    xid, op, body = await peer.request()
    assert op == OpCode.SASL
    return xid, decode_sasl(body, 0, len(body))


async def believe(peer: Peer) -> None:
    await peer.handshake()
    xid, first = await token(peer)
    assert first == b""
    peer.writer.write(encode_sasl(xid, 0, challenge("nonce")))
    xid, response = await token(peer)
    peer.writer.write(encode_sasl(xid, 0, check(response, "nonce", hash_of).token))


async def refuse(peer: Peer) -> None:
    await peer.handshake()
    xid, _ = await token(peer)
    peer.writer.write(encode_sasl(xid, -124, None))
    await peer.rest_count()


def client_of(hosts: str, login: Known | None = None) -> Client:
    return Client(hosts, session_timeout_ms=TIMEOUT_MS, sasl=login or Known())


def test_both_sides_prove_the_password() -> None:
    exchange = DigestExchange(Known(), "cnonce")
    response = exchange.take(challenge("nonce"))
    assert response is not None
    assert exchange.take(check(response, "nonce", hash_of).token) is None


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([b""], "without a nonce"),
        ([b'realm="x",nonce="n",qop="auth-conf"'], "without the quality auth"),
        ([b"\xff"], "is no UTF-8"),
        ([challenge("n"), b"rspauth=00"], "does not prove that it knows the password"),
        ([challenge("n"), challenge("n")], "does not prove that it knows the password"),
    ],
)
def test_a_server_that_does_not_follow_is_not_believed(tokens: list[bytes], told: str) -> None:
    exchange = DigestExchange(Known(), "cnonce")
    for each in tokens[:-1]:
        exchange.take(each)
    with pytest.raises(ProtocolError, match=told):
        exchange.take(tokens[-1])


async def test_nothing_is_asked_before_the_proof() -> None:
    async def scene(peer: Peer) -> None:
        await believe(peer)
        await peer.answer_closing()

    async with server(scene) as hosts:
        client = client_of(hosts)
        await client.start()
        assert (client.session_id, client.state) == (SESSION_ID, ClientState.CONNECTED)
        await client.close()


async def test_a_refused_password_ends_a_start() -> None:
    async with server(refuse) as hosts:
        with pytest.raises(SaslRefusedError, match="does not believe SASL of 'al,ice'") as refused:
            await client_of(hosts).start()
    assert refused.value.definite
    assert refused.value.retriable


async def test_a_server_that_knows_no_password_gets_no_session() -> None:
    async def scene(peer: Peer) -> None:
        await peer.handshake()
        for answer in (challenge("nonce"), b"rspauth=0123"):
            xid, _ = await token(peer)
            peer.writer.write(encode_sasl(xid, 0, answer))
        await peer.rest_count()

    async with server(scene) as hosts:
        with pytest.raises(NoServerError):
            await client_of(hosts).start(patience_ms=300)


async def test_a_session_survives_a_server_that_refuses_and_one_that_hangs() -> None:
    async def serve_once(peer: Peer) -> None:
        await believe(peer)

    async def hang(peer: Peer) -> None:
        await peer.handshake()
        await token(peer)
        await peer.rest_count()

    async def serve(peer: Peer) -> None:
        await believe(peer)
        await peer.answer_closing()

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with server(serve_once, refuse, hang, serve) as hosts:
        client = client_of(hosts)
        states: asyncio.Queue[ClientState] = asyncio.Queue()
        client.add_listener(states.put_nowait)
        await client.start()
        seen = [await states.get() for _ in range(3)]
        assert seen == [ClientState.CONNECTED, ClientState.SUSPENDED, ClientState.CONNECTED]
        await client.close()
    (context,) = told
    assert isinstance(context["exception"], SaslRefusedError)
