"""What a client proves about itself, on every connection again.

Pure soft state: knows frames and answers, no socket. Servers keep credentials per connection, so all of them
are sent after each handshake, before anything that they may be needed for. Answers come in the order of the
packets, but ZooKeeper lets them overtake replies; they have an xid of their own.

Credentials that are refused before any server accepted them are dropped: their caller gets the error, the
server ends the connection, and the next one goes on without them. Those that were accepted once are kept: no
connection may serve with fewer rights than add_auth has promised, so one that refuses them is ended, and the
next is offered them again. ZooKeeper's own client fails for good there; servers that disagree are left for
those that accept. SASL comes before everything else, and a connection that refuses it serves nothing.
Source: ZooKeeperServer.processPacket, ClientCnxn.SendThread.primeConnection (ZooKeeper 3.9).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator
from typing import Final

from quorum.client.errors import AuthFailedError, ClientError, SaslRefusedError
from quorum.client.sasl import DigestExchange, Login
from quorum.errors import ProtocolError
from quorum.wire.replies import decode_header, decode_sasl
from quorum.wire.requests import encode_sasl

_NONCE_BYTES: Final = 24
#: of the requests of SASL; those of Outstanding begin at 1, and none of these is among them
_SASL_XID: Final = 0


class Credential:
    """One proof, and the future that waits for its acceptance."""

    __slots__ = ("frame", "future", "scheme")

    def __init__(self, scheme: str, frame: bytes, future: asyncio.Future[None]) -> None:
        self.scheme = scheme
        #: the auth packet, the same on every connection
        self.frame = frame
        self.future = future


class Credentials:
    """Everything that is proven, or on its way."""

    def __init__(self, login: Login | None) -> None:
        """Start with nothing to prove but, perhaps, by SASL who this is."""
        self._login = login
        #: of this connection; None: over, or there is none
        self._exchange: DigestExchange | None = None
        #: in the order in which they were added
        self._known: list[Credential] = []
        #: sent on this connection and not answered, in order
        self._sent: deque[Credential] = deque()

    def forget_connection(self) -> None:
        """Forget what was sent on an earlier connection."""
        self._sent.clear()
        self._exchange = None

    def begin_sasl(self) -> bytes | None:
        """Return the first packet of SASL for a new connection; None: there is nothing to prove by it."""
        if self._login is None:
            return None
        self._exchange = DigestExchange(self._login, secrets.token_hex(_NONCE_BYTES))
        return encode_sasl(_SASL_XID, b"")

    def take_sasl(self, frame: memoryview) -> bytes | None:
        """Take a reply of SASL; returns the next packet, or None: it is proved.

        Raises:
            SaslRefusedError: the server does not believe it.
            ProtocolError: it is no such reply, or the server does not know the password.
        """
        assert self._login is not None and self._exchange is not None, "only while it is proved"
        header = decode_header(frame)
        if header.xid != _SASL_XID:
            raise ProtocolError(f"a reply to request {header.xid} during SASL")
        if header.err:
            raise SaslRefusedError(header.err, self._login.name)
        answer = self._exchange.take(decode_sasl(frame))
        if answer is None:
            self._exchange = None
            return None
        return encode_sasl(_SASL_XID, answer)

    @property
    def proves_sasl(self) -> bool:
        """Whether SASL is under way on this connection."""
        return self._exchange is not None

    def find(self, frame: bytes) -> Credential | None:
        """Return the same proof, if it was added before."""
        return next((each for each in self._known if each.frame == frame), None)

    def add(self, credential: Credential) -> None:
        """Keep a proof for every connection to come."""
        self._known.append(credential)

    def send(self, credential: Credential) -> bytes:
        """Return the packet that proves it on this connection."""
        self._sent.append(credential)
        return credential.frame

    def send_all(self) -> Iterator[bytes]:
        """Yield the packets for a new connection."""
        for credential in self._known:
            yield self.send(credential)

    def answered(self, err: int) -> Credential | None:
        """Take the answer to the oldest packet.

        Returns:
            The proof, if it was accepted before and is refused now: this connection must not go on, and its
            owner waits for no answer any more. None in every other case.

        Raises:
            ProtocolError: there was nothing to answer.
        """
        if not self._sent:
            raise ProtocolError("an answer to credentials that were not sent")
        credential = self._sent.popleft()
        accepted = credential.future.done()
        if not err:
            if not accepted:
                credential.future.set_result(None)
            return None
        if accepted:
            return credential
        self._known.remove(credential)
        credential.future.set_exception(AuthFailedError(err, "", credential.scheme))
        return None

    def fail(self, error: ClientError) -> None:
        """Fail what still waits: no connection will come."""
        for credential in self._known:
            if not credential.future.done():
                credential.future.set_exception(error)
