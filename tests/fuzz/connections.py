"""Target `connection`: client connections over a real state machine, without sockets.

An input is a program: clients connect, resume, send well-formed, changed and invented frames in pieces of
any size, vanish; outcomes are held back; time passes; members change. Nothing may raise; what a client gets
must be whole frames, with one answer to each request in the order of the requests; and a connection that
lives must have answered everything in the end.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from hashlib import sha1
from typing import Final

from quorum.errors import ChangeRefusedError, OutcomeUnknownError
from quorum.wire.requests import ConnectRequest, encode_connect
from tests.conformance.differential.wire import request_frame
from tests.fuzz.choices import Choices
from tests.fuzz.samples import CHANGE, PING, PROOF, SAMPLES, SUPER_USER
from tests.unit.server.memory import GREETING, MemoryClient, MemoryNode

STEPS_MAX: Final = 60
CLIENTS_MAX: Final = 3
_FRAME_BYTES_MAX: Final = 4096
_PING: Final = 11
#: answers to pings, and events; a request that asks for such an xid cannot be told from them
_OWN_WAY: Final = (-1, -2)
_LIMITS: Final = {
    "frame_bytes_max": _FRAME_BYTES_MAX,
    "outstanding_requests_max": 4,
    "watches_per_connection_max": 6,
    "outbound_bytes_max": 1 << 20,
    "super_digest": "super:" + b64encode(sha1(SUPER_USER, usedforsecurity=False).digest()).decode(),
}
_MEMBERS: Final = json.dumps(
    {"voters": {str(number): {"address": f"h:{number}", "incarnation": ""} for number in (1, 2, 3)}}
).encode()


class _Peer:
    """A client, what it sent and what it got."""

    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self._sent = bytearray()
        self._got = bytearray()
        self._greeted = False
        #: whether its first packet was a handshake that must be answered
        self.proper = False

    def send(self, data: bytes) -> None:
        """Let bytes arrive, unless the server does not read or has hung up."""
        if self.client.has_ended() or self.client.is_paused():
            return
        self._sent += data
        self.client.send(data, turn=False)

    def frames(self) -> list[bytes]:
        """Every frame that came so far; they must be whole."""
        self._got += self.client.received()
        return _cut(self._got)

    def check(self) -> None:
        """Compare the xids of the answers with those of the requests."""
        if not self.proper:
            return
        answers = [_xid(frame) for frame in self.frames()[1:]]
        requests = _cut(self._sent, whole=False)[1:]
        asked = [_xid(frame) for frame in requests if _op(frame) != _PING]
        asked = [xid for xid in asked if xid not in _OWN_WAY]
        told = [xid for xid in answers if xid not in _OWN_WAY]
        assert told == asked[: len(told)], (asked, told)
        if not self.client.has_ended():
            assert not self.client.is_paused(), "it is not read, and nothing is under way"
            assert len(told) == len(asked), (asked, told)
            pings = sum(_op(frame) == _PING for frame in requests)
            assert sum(xid == -2 for xid in answers) == pings


def _cut(data: bytes | bytearray, *, whole: bool = True) -> list[bytes]:
    """Cut bytes into frames, up to a length that no server takes, or to a frame that is not whole."""
    frames = []
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if not whole and (length < 8 or length > _FRAME_BYTES_MAX or at + 4 + length > len(data)):
            break
        frame = bytes(data[at + 4 : at + 4 + length])
        assert len(frame) == length, "a frame is cut off"
        frames.append(frame)
        at += 4 + length
    assert not whole or at == len(data), "bytes behind the last frame"
    return frames


def _xid(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True)


def _op(frame: bytes) -> int:
    return int.from_bytes(frame[4:8], "big", signed=True)


class _Story:
    """A node and its clients."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._node = MemoryNode(**_LIMITS)
        self._node.replica.apply_configuration(_MEMBERS)
        self._peers: list[_Peer] = []
        self._xid = 0
        self._tokens: list[tuple[int, bytes]] = []

    def step(self) -> None:
        """Do what the next bytes say."""
        choices = self._choices
        replica = self._node.replica
        match choices.below(16):
            case 0 | 1:
                self._connect()
            case 2:
                replica.holding = True
            case 3:
                replica.release(None if choices.below(2) else 1)
            case 4:
                self._node.advance(choices.pick((1.0, 500.0, 5000.0, 60_000.0)))
            case 5:
                self._node.turn()
            case 6 if self._peers:
                self._vanish()
            case 7:
                replica.full = choices.below(2) == 1
                self._node.turn()
            case 8:
                self._change_members()
            case _ if self._peers:
                self._send()

    def end(self) -> None:
        """Let everything that waits happen, and look at the whole."""
        node = self._node
        node.replica.full = False
        node.replica.release()
        for _ in range(10_000):
            node.turn()
            if not node.replica.changes:
                break
            self._change_members()
        # What was held back because the node was saturated goes on with the next tick.
        for _ in range(50):
            node.advance(1.0)
        for peer in self._peers:
            peer.check()
        node.replica.machine.check_invariants()

    def _connect(self) -> None:
        choices = self._choices
        if len(self._peers) >= CLIENTS_MAX:
            return
        peer = _Peer(self._node.client(choices.pick(("10.0.0.1", "::1"))))
        self._peers.append(peer)
        match choices.below(6):
            case 4:
                peer.send(choices.blob(60))
            case 5:
                session_id, password = choices.pick([*self._tokens, (7, bytes(16))])
                peer.send(
                    encode_connect(ConnectRequest(0, choices.below(3), 4000, session_id, password, None))
                )
            case _:
                peer.proper = True
                peer.send(encode_connect(GREETING))
                self._node.turn()
                frames = peer.frames()
                if frames:
                    (session_id,) = struct.unpack_from(">q", frames[0], 8)
                    self._tokens.append((session_id, frames[0][20:36]))

    def _vanish(self) -> None:
        peer = self._peers.pop(self._choices.below(len(self._peers)))
        peer.client.vanish()
        self._node.turn()

    def _change_members(self) -> None:
        replica = self._node.replica
        if replica.changes:
            told = replica.changes.pop(0)[3]
            told(self._choices.pick((None, ChangeRefusedError("no"), OutcomeUnknownError("who knows"))))
            self._node.turn()

    def _send(self) -> None:
        choices = self._choices
        peer = choices.pick(self._peers)
        data = b"".join(self._frame() for _ in range(1 + choices.below(6)))
        if choices.rarely(3):
            cut = choices.below(len(data) + 1) if len(data) < 255 else choices.below(255)
            peer.send(data[:cut])
            if choices.below(2):
                self._node.turn()
            peer.send(data[cut:])
        else:
            peer.send(data)
        if choices.below(2):
            self._node.turn()

    def _frame(self) -> bytes:
        choices = self._choices
        if choices.rarely(16):
            return choices.blob(40)
        self._xid += 1
        frame = bytearray(request_frame(self._xid, choices.pick(SAMPLES)))
        if choices.rarely(4):
            at = choices.below(len(frame))
            frame[at] = choices.below(256)
        elif choices.rarely(6):
            body = bytes(frame[4 : 12 + choices.below(30)])
            frame = bytearray(struct.pack(">i", len(body)) + body)
        elif choices.rarely(6):
            body = bytes(frame[4:]) + choices.blob(20)
            frame = bytearray(struct.pack(">i", len(body)) + body)
        return bytes(frame)


class ConnectionTarget:
    """The client port in memory."""

    def seeds(self) -> list[bytes]:
        """Programs in which a client connects and sends one request of every kind."""
        connect = bytes(3)
        sends = [bytes([9, 0, 0, 0, number, 0, 0, 0, 0, 1]) for number in range(len(SAMPLES))]
        change = connect + sends[PROOF] + sends[CHANGE] + b"".join(sends[9:12]) + sends[PING] + bytes([8, 0])
        return [*(connect + send for send in sends), connect + b"".join(sends), change]

    def run(self, data: bytes) -> None:
        """Play the program to its end."""
        choices = Choices(data)
        story = _Story(choices)
        for _ in range(STEPS_MAX):
            if choices.exhausted:
                break
            story.step()
        story.end()
