"""The hello between two peers: mutual proof of the shared secret, then of identity. Sans-IO.

Five records, two round trips. The side that dials proves itself first, so without the secret nobody learns
more of a node than that it listens::

    dialler → hello      fresh nonce, own identity, node id that it wants to reach
    acceptor → challenge fresh nonce
    dialler → proof      MAC of "dial"
    acceptor → verdict   own identity and a refusal or none, MAC of "accept" over all of it
    dialler → confirm    a refusal or none, MAC of "confirm" over all of it; messages may follow at once

A MAC is HMAC-SHA256 over the direction, both nonces and every identity known by then. Fresh nonces of both
sides make a replayed hello worthless, the direction a reflected one. A dialler proves the first of its
secrets, an acceptor takes any of its own and answers with the same. The frames that follow are sealed by a
key of that secret (sealing.py). A hello of another version is refused, never spoken: whoever sits between two
nodes could else talk them out of the seal. The module knows no clock, sockets or logging, draws no nonces,
and keeps soft state only.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Container, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgpack

from quorum.errors import ProtocolError, shown
from quorum.raft.peers.sealing import frame_key

#: Version of the records of this module; since 2 the frames that follow are sealed, since 3 an identity says
#: what its node supports, and may have more fields than this build knows.
HELLO_VERSION: Final = 3
NONCE_BYTES: Final = 32
#: Largest body of one record.
RECORD_BYTES_MAX: Final = 4096
#: Longest text of an identity, in bytes.
IDENTITY_TEXT_BYTES_MAX: Final = 256

_MAGIC: Final = b"QRTM"
_HEADER: Final = struct.Struct(">4sBBH")  #: magic, version, kind, bytes of the body
_PROOF_BYTES: Final = 32
_NODE_ID_MAX: Final = 2**31 - 1
_RELEASES: Final = "all nodes must run releases that speak the same peer protocol"


class _Kind(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    VERDICT = 4
    CONFIRM = 5
    REJECTED = 6  #: not authenticated: says no more than that


class RefusalReason(IntEnum):
    """Why a hello failed. The numbers are on the wire."""

    AUTHENTICATION = 1
    CLUSTER_NAME = 2
    CLUSTER_ID = 3
    OWN_ID = 4
    NOT_A_MEMBER = 5
    WRONG_NODE = 6
    PROTOCOL = 7
    RETIRED = 8
    ANOTHER_DISK = 9
    FEATURE_LEVEL = 10


class PeerIdentity(NamedTuple):
    """What a node says of itself."""

    cluster: str  #: cluster name
    cluster_id: str  #: 32 hex digits; empty while it is not known
    node_id: int
    incarnation: str  #: 32 hex digits
    address: str = ""  #: host:port where others dial it; empty if it does not say
    #: the term of a founder whose log is empty; None: it founds nothing
    founding_term: int | None = None
    #: the highest feature level that it supports
    feature_level: int = 1


class Refusal(NamedTuple):
    """Why one side did not accept the other, as that side sees it."""

    reason: RefusalReason
    field: str
    wanted: str  #: the value on the side that refuses
    found: str  #: the value on the side that is refused
    remedy: str


class HelloRefusedError(ProtocolError):
    """The hello ended without a connection.

    Attributes:
        refusal: which field, both values and the remedy.
        by_peer: true if the other side refused this node.
        reply: bytes to write before the connection is closed; may be empty.
    """

    def __init__(self, refusal: Refusal, *, by_peer: bool, reply: bytes = b"") -> None:
        side = "the peer refused this node" if by_peer else "this node refused the peer"
        own, other = (refusal.found, refusal.wanted) if by_peer else (refusal.wanted, refusal.found)
        values = f": {other} there, {own} here" if own or other else ""
        super().__init__(f"{side}: {refusal.field}{values}", refusal.remedy)
        self.refusal = refusal
        self.by_peer = by_peer
        self.reply = reply


#: Says why an identity that is proven is not accepted, or None.
Judge = Callable[[PeerIdentity], Refusal | None]


def _accept(_other: PeerIdentity) -> Refusal | None:
    return None


_NOT_AUTHENTICATED: Final = Refusal(
    RefusalReason.AUTHENTICATION,
    "authentication failed",
    "",
    "",
    "give all nodes of the cluster the same peer_secret_file",
)


class _Hello:
    """What both sides share: records out of a byte stream, and the transcript that the MACs cover."""

    def __init__(self, identity: PeerIdentity, secrets: Sequence[bytes], nonce: bytes) -> None:
        if not secrets or not all(secrets):
            raise ValueError("peer secret is empty: anybody could join the cluster")
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"nonce has {len(nonce)} bytes instead of {NONCE_BYTES}")
        for text in (identity.cluster, identity.cluster_id, identity.incarnation):
            if len(text.encode()) > IDENTITY_TEXT_BYTES_MAX:
                raise ValueError(f"{shown(text)} is longer than {IDENTITY_TEXT_BYTES_MAX} bytes")
        self._identity = identity
        #: those that are accepted; once one of them was proved, that one alone
        self._secrets = tuple(secrets)
        self._nonce = nonce
        self._peer_nonce = b""
        self._received = b""
        self._transcript: list[bytes] = []
        #: the other side, once it is authenticated and accepted
        self.peer: PeerIdentity | None = None
        #: the other side, once it is authenticated, whether or not one side refuses the other
        self.proven: PeerIdentity | None = None

    @property
    def done(self) -> bool:
        """Whether both sides accepted each other."""
        return self.peer is not None

    @property
    def frame_key(self) -> bytes:
        """The key of the frames that follow; only once done."""
        dials = isinstance(self, Dialler)
        nonces = (self._nonce, self._peer_nonce) if dials else (self._peer_nonce, self._nonce)
        return frame_key(self._secrets[0], *nonces)

    @property
    def rest(self) -> bytes:
        """Bytes received after the hello; once done they belong to the messages that follow."""
        return self._received

    def feed(self, received: bytes) -> bytes:
        """Take bytes from the other side, in any slices.

        Returns:
            Bytes to write now; may be empty.
        """
        self._received += received
        answer = b""
        while not self.done and (record := self._next_record()) is not None:
            answer += self._handle(*record)
        return answer

    def _handle(self, kind: int, body: bytes) -> bytes:
        raise NotImplementedError

    def _next_record(self) -> tuple[int, bytes] | None:
        head = self._received[: _HEADER.size]
        if head[: len(_MAGIC)] != _MAGIC[: len(head)]:
            # Not a node: no answer, whatever it is would not understand it.
            remedy = "only nodes may connect to a peer port"
            refusal = Refusal(RefusalReason.PROTOCOL, "first bytes", repr(_MAGIC), shown(head), remedy)
            raise HelloRefusedError(refusal, by_peer=False)
        if len(head) > len(_MAGIC) and head[len(_MAGIC)] != HELLO_VERSION:
            found = str(head[len(_MAGIC)])
            raise self._unfit("hello version", str(HELLO_VERSION), found, "upgrade the older node")
        if len(head) < _HEADER.size:
            return None
        _, _, kind, size = _HEADER.unpack(head)
        if size > RECORD_BYTES_MAX:
            raise self._unfit("record length", f"at most {RECORD_BYTES_MAX}", str(size))
        if len(self._received) < _HEADER.size + size:
            return None
        body = self._received[_HEADER.size : _HEADER.size + size]
        self._received = self._received[_HEADER.size + size :]
        return kind, body

    def _mac(self, direction: bytes, secret: bytes) -> bytes:
        parts = [_MAGIC, bytes((HELLO_VERSION,)), direction, *self._transcript]
        covered = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(secret, covered, "sha256")

    def _proof(self, direction: bytes) -> bytes:
        return self._mac(direction, self._secrets[0])

    def _proven(self, direction: bytes, proof: bytes) -> bool:
        """Say whether one of the secrets is proved; from then on it is the only one."""
        for secret in self._secrets:
            if hmac.compare_digest(self._mac(direction, secret), proof):
                self._secrets = (secret,)
                return True
        return False

    def _expect(self, kind: int, wanted: _Kind) -> None:
        if kind != wanted:
            raise self._unfit("record kind", str(int(wanted)), str(kind))

    def _unfit(self, field: str, wanted: str, found: str, remedy: str = _RELEASES) -> HelloRefusedError:
        """Describe bytes that are not a hello of this release; the other side does not hear of it."""
        refusal = Refusal(RefusalReason.PROTOCOL, field, wanted, found, remedy)
        return HelloRefusedError(refusal, by_peer=False, reply=_record(_Kind.REJECTED, b""))

    def _unproven(self) -> HelloRefusedError:
        return HelloRefusedError(_NOT_AUTHENTICATED, by_peer=False, reply=_record(_Kind.REJECTED, b""))


class Dialler(_Hello):
    """The side that opened the connection, and will send messages on it."""

    def __init__(
        self,
        identity: PeerIdentity,
        target_id: int,
        secret: bytes,
        nonce: bytes,
        *,
        judge: Judge = _accept,
    ) -> None:
        """Prepare one hello.

        Args:
            identity: this node.
            target_id: the node that should listen at the dialled address.
            secret: the peer secret that is proved, not empty.
            nonce: NONCE_BYTES unpredictable bytes, never used before.
            judge: asked about the node that proved to be the target.
        """
        super().__init__(identity, (secret,), nonce)
        self._target_id = target_id
        self._judge = judge
        self._challenged = False

    def begin(self) -> bytes:
        """Return the first record to write."""
        body = self._nonce + msgpack.packb([list(self._identity), self._target_id])
        self._transcript.append(body)
        return _record(_Kind.HELLO, body)

    def _handle(self, kind: int, body: bytes) -> bytes:
        if kind == _Kind.REJECTED:
            raise HelloRefusedError(_NOT_AUTHENTICATED, by_peer=True)
        if not self._challenged:
            self._expect(kind, _Kind.CHALLENGE)
            if len(body) != NONCE_BYTES:
                raise self._unfit("challenge length", str(NONCE_BYTES), str(len(body)))
            self._challenged = True
            self._peer_nonce = body
            self._transcript.append(body)
            return _record(_Kind.PROOF, self._proof(b"dial"))
        self._expect(kind, _Kind.VERDICT)
        return self._confirm(body[:_PROOF_BYTES], body[_PROOF_BYTES:])

    def _confirm(self, proof: bytes, verdict: bytes) -> bytes:
        self._transcript.append(verdict)
        if not self._proven(b"accept", proof):
            raise self._unproven()
        identity, refusal = self._read_verdict(verdict)
        self.proven = identity
        if refusal is not None:
            raise HelloRefusedError(refusal, by_peer=True)
        refusal = conflict(self._identity, identity)
        if refusal is None and identity.node_id != self._target_id:
            refusal = _wrong_node(self._target_id, identity.node_id)
        if refusal is None:
            refusal = self._judge(identity)
        plain = _plain_refusal(refusal)
        self._transcript.append(plain)
        answer = _record(_Kind.CONFIRM, self._proof(b"confirm") + plain)
        if refusal is not None:
            raise HelloRefusedError(refusal, by_peer=False, reply=answer)
        self.peer = identity
        return answer

    def _read_verdict(self, verdict: bytes) -> tuple[PeerIdentity, Refusal | None]:
        values = _unpacked(verdict)
        if type(values) is list and len(values) == 2:
            identity = _read_identity(values[0])
            if identity is not None and (
                values[1] is None or (refusal := _read_refusal(values[1])) is not None
            ):
                return identity, None if values[1] is None else refusal
        raise self._unfit("verdict", "an identity and a refusal", shown(values))


class Callee(_Hello):
    """The side that was called, and will only receive messages."""

    def __init__(
        self,
        identity: PeerIdentity,
        member_ids: Container[int],
        secrets: Sequence[bytes],
        nonce: bytes,
        *,
        judge: Judge = _accept,
    ) -> None:
        """Prepare one hello.

        Args:
            identity: this node.
            member_ids: the other members; asked when the peer has proven the secret.
            secrets: the peer secrets of which one must be proved, none empty.
            nonce: NONCE_BYTES unpredictable bytes, never used before.
            judge: asked about a member that has proven the secret.
        """
        super().__init__(identity, secrets, nonce)
        self._member_ids = member_ids
        self._judge = judge
        self._claimed: PeerIdentity | None = None
        self._wanted_id = 0
        self._proved = False

    def _handle(self, kind: int, body: bytes) -> bytes:
        if kind == _Kind.REJECTED:
            raise HelloRefusedError(_NOT_AUTHENTICATED, by_peer=True)
        if self._claimed is None:
            self._expect(kind, _Kind.HELLO)
            return self._challenge(body)
        if not self._proved:
            self._expect(kind, _Kind.PROOF)
            return self._verdict(self._claimed, body)
        self._expect(kind, _Kind.CONFIRM)
        self._finish(self._claimed, body[:_PROOF_BYTES], body[_PROOF_BYTES:])
        return b""

    def _challenge(self, hello: bytes) -> bytes:
        values = _unpacked(hello[NONCE_BYTES:])
        claimed = _read_identity(values[0]) if type(values) is list and len(values) == 2 else None
        if claimed is None or not _is_node_id(values[1]):
            raise self._unfit("hello", "an identity and a node id", shown(values))
        self._claimed = claimed
        self._wanted_id = values[1]
        self._peer_nonce = hello[:NONCE_BYTES]
        self._transcript += (hello, self._nonce)
        return _record(_Kind.CHALLENGE, self._nonce)

    def _verdict(self, claimed: PeerIdentity, proof: bytes) -> bytes:
        if not self._proven(b"dial", proof):
            raise self._unproven()
        self._proved = True
        self.proven = claimed
        refusal = conflict(self._identity, claimed)
        if refusal is None and self._wanted_id != self._identity.node_id:
            refusal = _wrong_node(self._identity.node_id, self._wanted_id)
        if refusal is None and claimed.node_id not in self._member_ids:
            refusal = Refusal(
                RefusalReason.NOT_A_MEMBER,
                "node id",
                "not a member",
                str(claimed.node_id),
                "add the node with `quorate members add` first, or correct [members]",
            )
        if refusal is None:
            refusal = self._judge(claimed)
        verdict: bytes = msgpack.packb([list(self._identity), None if refusal is None else list(refusal)])
        self._transcript.append(verdict)
        answer = _record(_Kind.VERDICT, self._proof(b"accept") + verdict)
        if refusal is not None:
            raise HelloRefusedError(refusal, by_peer=False, reply=answer)
        return answer

    def _finish(self, claimed: PeerIdentity, proof: bytes, plain: bytes) -> None:
        self._transcript.append(plain)
        if not self._proven(b"confirm", proof):
            raise self._unproven()
        if plain:
            refusal = _read_refusal(_unpacked(plain))
            if refusal is None:
                raise self._unfit("confirm", "a refusal", shown(plain))
            raise HelloRefusedError(refusal, by_peer=True)
        self.peer = claimed


def conflict(mine: PeerIdentity, other: PeerIdentity) -> Refusal | None:
    """Return why two nodes cannot be peers, or None. Both sides decide this in the same way."""
    if other.cluster != mine.cluster:
        remedy = "correct [node] cluster or the address in [members]"
        return Refusal(
            RefusalReason.CLUSTER_NAME, "cluster name", repr(mine.cluster), repr(other.cluster), remedy
        )
    if mine.cluster_id and other.cluster_id and other.cluster_id != mine.cluster_id:
        remedy = (
            "the two were founded, forced or restored separately: correct the address in [members] or "
            "node.data_dir, or give one of them an empty data directory and --join"
        )
        return Refusal(RefusalReason.CLUSTER_ID, "cluster id", mine.cluster_id, other.cluster_id, remedy)
    if other.node_id == mine.node_id:
        if other.incarnation == mine.incarnation:
            field, remedy = (
                "node id (connected to itself)",
                "correct the address of the other nodes in [members]",
            )
        else:
            field, remedy = "node id (two nodes have the same)", "give every node its own [node] id"
        return Refusal(RefusalReason.OWN_ID, field, str(mine.node_id), str(other.node_id), remedy)
    return None


def _wrong_node(wanted: int, found: int) -> Refusal:
    remedy = "correct the addresses in [members]"
    return Refusal(RefusalReason.WRONG_NODE, "node id at this address", str(wanted), str(found), remedy)


def _record(kind: _Kind, body: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, HELLO_VERSION, kind, len(body)) + body


def _plain_refusal(refusal: Refusal | None) -> bytes:
    packed: bytes = b"" if refusal is None else msgpack.packb(list(refusal))
    return packed


def _unpacked(body: bytes) -> Any:
    """Unpack without trust; None for what is not msgpack (no record has None for its whole body)."""
    try:
        return msgpack.unpackb(body, raw=False, max_map_len=0, max_ext_len=0, max_array_len=16)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def _is_node_id(value: object) -> bool:
    return type(value) is int and 0 < value <= _NODE_ID_MAX


def _read_identity(values: Any) -> PeerIdentity | None:
    """Read an identity; what a newer build says behind the known fields is left alone."""
    if type(values) is not list or len(values) < len(PeerIdentity._fields):
        return None
    values = values[: len(PeerIdentity._fields)]
    cluster, cluster_id, node_id, incarnation, address, founding_term, feature_level = values
    if founding_term is not None and (type(founding_term) is not int or founding_term < 0):
        return None
    for text in (cluster, cluster_id, incarnation, address):
        if type(text) is not str or len(text.encode(errors="replace")) > IDENTITY_TEXT_BYTES_MAX:
            return None
    if not _is_node_id(node_id) or type(feature_level) is not int or feature_level < 1:
        return None
    return PeerIdentity(*values)


def _read_refusal(values: Any) -> Refusal | None:
    if type(values) is not list or len(values) != len(Refusal._fields):
        return None
    reason, *texts = values
    if type(reason) is not int or not all(type(text) is str for text in texts):
        return None
    # A newer build may have another reason; its words say which.
    known = reason in RefusalReason.__members__.values()
    return Refusal(RefusalReason(reason) if known else RefusalReason.PROTOCOL, *texts)
