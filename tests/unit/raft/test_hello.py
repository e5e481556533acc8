"""The hello between peers: who is let in, who is refused, and who learns what."""

from __future__ import annotations

import hmac
import itertools
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.raft.peers.hello import (
    NONCE_BYTES,
    Callee,
    Dialler,
    HelloRefusedError,
    PeerIdentity,
    RefusalReason,
    conflict,
)

SECRET = b"a secret of the cluster"
ONE = PeerIdentity("local", "a" * 32, 1, "1" * 32)
TWO = PeerIdentity("local", "a" * 32, 2, "2" * 32, "host:7002", founding_term=7)
MEMBERS = {1, 2, 3}
_nonces = itertools.count(1)


def nonce() -> bytes:
    return next(_nonces).to_bytes(NONCE_BYTES, "big")


def dialler(identity: PeerIdentity = ONE, target: int = 2, secret: bytes = SECRET) -> Dialler:
    return Dialler(identity, target, secret, nonce())


def acceptor(identity: PeerIdentity = TWO, *secrets: bytes) -> Callee:
    return Callee(identity, MEMBERS - {identity.node_id}, secrets or (SECRET,), nonce())


class Talk:
    """What both sides wrote, and how each ended."""

    def __init__(self, dialling: Dialler, accepting: Callee, tail: bytes = b"") -> None:
        self.to_acceptor: list[bytes] = []
        self.to_dialler: list[bytes] = []
        self.dialler_error: HelloRefusedError | None = None
        self.acceptor_error: HelloRefusedError | None = None
        pending = dialling.begin()
        while pending:
            self.to_acceptor.append(pending)
            try:
                answer = accepting.feed(pending + (tail if dialling.done else b""))
            except HelloRefusedError as error:
                self.acceptor_error = error
                answer = error.reply
            pending = b""
            if answer:
                self.to_dialler.append(answer)
                try:
                    pending = dialling.feed(answer)
                except HelloRefusedError as error:
                    self.dialler_error = error
                    pending = error.reply if self.acceptor_error is None else b""

    @property
    def errors(self) -> tuple[HelloRefusedError, HelloRefusedError]:
        assert self.dialler_error is not None
        assert self.acceptor_error is not None
        return self.dialler_error, self.acceptor_error


def test_two_members_learn_who_the_other_is() -> None:
    dialling, accepting = dialler(), acceptor()
    Talk(dialling, accepting)
    assert dialling.peer == TWO
    assert accepting.peer == ONE


def test_any_of_the_acceptors_secrets_is_proved() -> None:
    for secrets in ((SECRET, b"former"), (b"next", SECRET)):
        dialling, accepting = dialler(), acceptor(TWO, *secrets)
        Talk(dialling, accepting)
        assert dialling.done
        assert accepting.done
        assert dialling.frame_key == accepting.frame_key
    refused = Talk(dialler(), acceptor(TWO, b"next", b"former")).errors
    assert {error.refusal.reason for error in refused} == {RefusalReason.AUTHENTICATION}


def test_every_connection_has_a_frame_key_of_its_own() -> None:
    keys = set()
    for _ in range(3):
        dialling, accepting = dialler(), acceptor()
        Talk(dialling, accepting)
        assert dialling.frame_key == accepting.frame_key
        keys.add(dialling.frame_key)
    assert len(keys) == 3


def test_bytes_behind_the_hello_are_kept_for_what_follows() -> None:
    dialling, accepting = dialler(), acceptor()
    Talk(dialling, accepting, tail=b"first message")
    assert accepting.done
    assert accepting.rest == b"first message"
    assert dialling.rest == b""


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_slices_do_not_matter(sizes: list[int]) -> None:
    dialling, accepting = dialler(), acceptor()
    cuts = itertools.cycle(sizes)
    pending, receiver, other = dialling.begin(), accepting, dialling
    while pending:
        answer = b""
        while pending:
            size = next(cuts)
            answer += receiver.feed(pending[:size])
            pending = pending[size:]
        pending = answer
        receiver, other = other, receiver  # type: ignore[assignment]
    assert dialling.peer == TWO
    assert accepting.peer == ONE


@pytest.mark.parametrize(
    ("here", "there"),
    [("", ""), ("a" * 32, ""), ("", "b" * 32)],
    ids=["both new", "one knows", "other knows"],
)
def test_an_unknown_cluster_id_is_no_obstacle(here: str, there: str) -> None:
    dialling, accepting = dialler(ONE._replace(cluster_id=here)), acceptor(TWO._replace(cluster_id=there))
    Talk(dialling, accepting)
    assert dialling.done
    assert accepting.done


REFUSED_BY_ACCEPTOR = [
    (ONE._replace(cluster="other"), 2, RefusalReason.CLUSTER_NAME, "cluster name", "'local'", "'other'"),
    (ONE._replace(cluster_id="b" * 32), 2, RefusalReason.CLUSTER_ID, "cluster id", "a" * 32, "b" * 32),
    (ONE._replace(node_id=9), 2, RefusalReason.NOT_A_MEMBER, "node id", "not a member", "9"),
    (ONE, 3, RefusalReason.WRONG_NODE, "node id at this address", "2", "3"),
    (TWO, 2, RefusalReason.OWN_ID, "connected to itself", "2", "2"),
    (TWO._replace(incarnation="9" * 32), 2, RefusalReason.OWN_ID, "two nodes have the same", "2", "2"),
]


@pytest.mark.parametrize("case", REFUSED_BY_ACCEPTOR, ids=lambda case: case[3])
def test_a_refusal_tells_both_sides_the_field_both_values_and_the_remedy(
    case: tuple[PeerIdentity, int, RefusalReason, str, str, str],
) -> None:
    identity, target, reason, field, wanted, found = case
    dialling, accepting = dialler(identity, target), acceptor()
    told, refusing = Talk(dialling, accepting).errors
    assert not dialling.done
    assert not accepting.done
    assert told.refusal == refusing.refusal
    assert told.refusal.reason == reason
    assert field in told.refusal.field
    assert (told.refusal.wanted, told.refusal.found) == (wanted, found)
    assert told.refusal.remedy
    assert told.by_peer
    assert not refusing.by_peer
    assert f"{found} there, {wanted} here" in str(refusing)
    assert f"{wanted} there, {found} here" in str(told)


def test_a_dialler_refuses_a_node_that_says_it_is_another_one() -> None:
    """Only a faulty acceptor gets this far: it took a hello that was meant for another node."""
    dialling = dialler(target=3)
    accepting = acceptor(TWO._replace(node_id=3))
    accepting._identity = TWO._replace(node_id=3)
    challenge = accepting.feed(dialling.begin())
    verdict_sent_as = accepting.feed(dialling.feed(challenge))
    # The same verdict, proven with the secret, but under another identity.
    values = msgpack.unpackb(verdict_sent_as[40:])
    values[0][2] = 2
    accepting._transcript[-1] = msgpack.packb(values)
    body = accepting._proof(b"accept") + msgpack.packb(values)
    with pytest.raises(HelloRefusedError) as caught:
        dialling.feed(verdict_sent_as[:6] + struct.pack(">H", len(body)) + body)
    assert caught.value.refusal.reason == RefusalReason.WRONG_NODE
    with pytest.raises(HelloRefusedError) as told:
        accepting.feed(caught.value.reply)
    assert told.value.by_peer
    assert told.value.refusal == caught.value.refusal


def test_another_secret_is_told_nothing_but_that_authentication_failed() -> None:
    talk = Talk(dialler(secret=b"another"), acceptor())
    told, refusing = talk.errors
    for error in (told, refusing):
        assert error.refusal.reason == RefusalReason.AUTHENTICATION
        assert "authentication failed" in str(error)
        assert "peer_secret_file" in str(error)
    shown = b"".join(talk.to_dialler)
    for text in (TWO.cluster, TWO.cluster_id, TWO.incarnation):
        assert text.encode() not in shown


def test_an_acceptor_with_another_secret_is_not_believed() -> None:
    """It skips its own check, as one would that wants to be sent entries."""
    dialling, accepting = dialler(), acceptor(TWO, b"another")
    proof = dialling.feed(accepting.feed(dialling.begin()))
    accepting._proven = lambda *_: True  # type: ignore[method-assign]
    with pytest.raises(HelloRefusedError, match="authentication failed"):
        dialling.feed(accepting.feed(proof))
    assert not dialling.done


def test_a_replayed_hello_is_refused() -> None:
    talk = Talk(dialler(), acceptor())
    fresh = acceptor()
    fresh.feed(talk.to_acceptor[0])
    with pytest.raises(HelloRefusedError, match="authentication failed"):
        fresh.feed(talk.to_acceptor[1])
    assert not fresh.done


def test_a_replayed_acceptor_is_refused() -> None:
    talk = Talk(dialler(), acceptor())
    fresh = dialler()
    fresh.begin()
    fresh.feed(talk.to_dialler[0])
    with pytest.raises(HelloRefusedError, match="authentication failed"):
        fresh.feed(talk.to_dialler[1])
    assert not fresh.done


def test_a_reflected_proof_is_refused() -> None:
    """Whoever answers a dialler with the dialler's own bytes proves nothing."""
    dialling = dialler()
    hello = dialling.begin()
    proof = dialling.feed(header(2, NONCE_BYTES) + hello[8 : 8 + NONCE_BYTES])
    mac = proof[8:]
    verdict = msgpack.packb([list(TWO), None])
    with pytest.raises(HelloRefusedError, match="authentication failed"):
        dialling.feed(header(4, len(mac + verdict)) + mac + verdict)


def test_a_proof_cannot_be_moved_to_another_identity() -> None:
    dialling, accepting = dialler(), acceptor()
    hello = dialling.begin()
    forged = hello.replace(ONE.incarnation.encode(), b"f" * 32)
    assert forged != hello
    proof = dialling.feed(accepting.feed(forged))
    with pytest.raises(HelloRefusedError, match="authentication failed"):
        accepting.feed(proof)


def test_every_proof_covers_direction_nonces_and_identities() -> None:
    """The bytes are a contract between releases; this computes them anew."""
    talk = Talk(dialler(), acceptor())
    hello, (proof, confirm) = talk.to_acceptor[0][8:], (record[8:] for record in talk.to_acceptor[1:])
    challenge, verdict = (record[8:] for record in talk.to_dialler)
    assert msgpack.unpackb(hello[NONCE_BYTES:]) == [list(ONE), 2]
    assert msgpack.unpackb(verdict[32:]) == [list(TWO), None]

    def mac(*parts: bytes) -> bytes:
        covered = b"".join(struct.pack(">I", len(part)) + part for part in (b"QRTM", b"\x03", *parts))
        return hmac.new(SECRET, covered, "sha256").digest()

    assert proof == mac(b"dial", hello, challenge)
    assert verdict[:32] == mac(b"accept", hello, challenge, verdict[32:])
    assert confirm == mac(b"confirm", hello, challenge, verdict[32:], b"")


def header(kind: int, size: int) -> bytes:
    return struct.pack(">4sBBH", b"QRTM", 3, kind, size)


@given(st.integers(0, 4), st.data())
def test_a_changed_byte_anywhere_is_noticed(record: int, data: st.DataObject) -> None:
    dialling, accepting = dialler(), acceptor()
    sides = itertools.cycle((accepting, dialling))

    def talk(pending: bytes) -> None:
        for position, side in enumerate(sides):
            if position == record:
                changed = bytearray(pending)
                # A longer record would only wait for more, which is ended by the transport's timeout.
                place = data.draw(st.sampled_from([n for n in range(len(pending)) if n not in (6, 7)]))
                changed[place] ^= data.draw(st.integers(1, 255))
                pending = bytes(changed)
            pending = side.feed(pending)
            assert pending

    with pytest.raises(HelloRefusedError):
        talk(dialling.begin())
    assert not accepting.done


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_refused_or_awaits_more(garbage: bytes) -> None:
    for side in (acceptor(), dialler()):
        try:
            side.feed(garbage)
        except HelloRefusedError:
            pass
        assert not side.done


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1", b"\x16\x03\x01", b"ruok", b"\x00"])
def test_another_protocol_is_refused_at_its_first_bytes_and_not_answered(first: bytes) -> None:
    with pytest.raises(HelloRefusedError, match="only nodes may connect") as caught:
        acceptor().feed(first)
    assert caught.value.reply == b""


def test_another_release_is_named() -> None:
    hello = bytearray(dialler().begin())
    hello[4] = 2
    with pytest.raises(HelloRefusedError, match="hello version: 2 there, 3 here"):
        acceptor().feed(bytes(hello))


def test_a_record_that_would_be_too_long_is_refused_before_it_arrives() -> None:
    with pytest.raises(HelloRefusedError, match="record length: 65535 there"):
        acceptor().feed(header(1, 65535))


@pytest.mark.parametrize("kind", [0, 2, 3, 4, 5, 9])
def test_a_record_out_of_turn_is_refused(kind: int) -> None:
    with pytest.raises(HelloRefusedError, match="record kind"):
        acceptor().feed(header(kind, 0))


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        7,
        [list(ONE), "2"],
        [list(ONE)[:-1], 2],
        [list(ONE._replace(node_id=True)), 2],
        [list(ONE._replace(node_id=0)), 2],
        [list(ONE._replace(founding_term=-1)), 2],
        [list(ONE._replace(feature_level=0)), 2],
        [[b"", *ONE[1:]], 2],
    ],
)
def test_a_hello_with_odd_values_is_refused(values: object) -> None:
    body = nonce() + msgpack.packb(values)
    with pytest.raises(HelloRefusedError, match="hello"):
        acceptor().feed(header(1, len(body)) + body)


def test_what_a_newer_build_says_besides_is_left_alone() -> None:
    accepting = acceptor()
    body = nonce() + msgpack.packb([[*ONE._replace(feature_level=7), "more"], 2])
    accepting.feed(header(1, len(body)) + body)
    assert accepting._claimed == ONE._replace(feature_level=7)


def test_a_refusal_for_a_reason_of_a_newer_build_keeps_its_words() -> None:
    dialling, secret = dialler(), SECRET
    hello = dialling.begin()
    dialling.feed(header(2, NONCE_BYTES) + bytes(NONCE_BYTES))
    verdict = msgpack.packb([list(TWO), [99, "moon", "full", "new", "wait"]])
    parts = (b"QRTM", b"\x03", b"accept", hello[8:], bytes(NONCE_BYTES), verdict)
    proof = hmac.digest(secret, b"".join(struct.pack(">I", len(each)) + each for each in parts), "sha256")
    with pytest.raises(HelloRefusedError, match="moon: full there, new here") as caught:
        dialling.feed(header(4, len(proof + verdict)) + proof + verdict)
    assert caught.value.refusal.reason is RefusalReason.PROTOCOL


def test_conflict_is_symmetric() -> None:
    identities = [
        ONE,
        TWO,
        ONE._replace(cluster="x"),
        TWO._replace(cluster_id="b" * 32),
        TWO._replace(cluster_id=""),
    ]
    for mine, other in itertools.product(identities, repeat=2):
        here, there = conflict(mine, other), conflict(other, mine)
        assert (here is None) == (there is None)
        if here is not None and there is not None:
            assert (here.reason, here.wanted, here.found) == (there.reason, there.found, there.wanted)


def test_unfit_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="peer secret is empty"):
        dialler(secret=b"")
    with pytest.raises(ValueError, match="nonce has 3 bytes"):
        Callee(ONE, MEMBERS, [SECRET], b"abc")
    with pytest.raises(ValueError, match="longer than 256 bytes"):
        dialler(ONE._replace(cluster="c" * 257))
