"""SCRAM without a socket: how brokers prove to each other that they know the peer secret, and users theirs.

Both halves of the exchange, each fed with the other's messages. Between brokers it is SCRAM-SHA-256, and
user, salt (the cluster id) and iterations are fixed; a client refuses a broker that names others, because
that broker is of another cluster. The client proves the first of its secrets and the server takes any of its
own, also while one is replaced (quorum.config.peer_secrets). No message, error or repr contains a secret.
There is no channel binding.
Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_urlsafe
from typing import Final, NamedTuple, Protocol

from quorum.errors import Fault, QuorateError, shown
from quorum.metadata.user_records import ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, scram_keys

MECHANISM: Final = "SCRAM-SHA-256"
USER: Final = "quorate"
ITERATIONS: Final = 4096
#: Longest message of the exchange that either half reads.
MESSAGE_BYTES_MAX: Final = 4096
#: How many pairs of secret and cluster keep their keys: deriving them takes milliseconds.
_CACHED_KEYS_MAX: Final = 32
_NONCE_BYTES: Final = 24
_GS2_HEADER: Final = "n,,"
#: what begins the first message: no channel binding, and perhaps an identity to act as
_GS2: Final = re.compile(r"[ny],(?:a=([^,]*))?,")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_ESCAPES: Final = re.compile(r"(?:[^=,]|=2C|=3D)*")
_SAME_FILE: Final = "give all brokers of the cluster the same peer_secret_file"


class ScramError(QuorateError):
    """The other side does not prove the secret, or does not follow the exchange."""

    fault = Fault.OPERATOR


@dataclass(frozen=True, slots=True)
class ScramVerifier:
    """What a server keeps of a secret: enough to check a proof, not to make one."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    #: "sha256" or "sha512"
    digest: str = "sha256"

    def proves(self, proof: bytes, auth_message: bytes) -> bool:
        """Whether a proof was made with these keys."""
        client_key = _xor(proof, hmac.digest(self.stored_key, auth_message, self.digest))
        return hmac.compare_digest(hashlib.new(self.digest, client_key).digest(), self.stored_key)

    def signature(self, auth_message: bytes) -> bytes:
        """What a server sends to show that it knows the secret."""
        return hmac.digest(self.server_key, auth_message, self.digest)


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What is derived from a secret, so that the secret itself need not be kept."""

    client_key: bytes = field(repr=False)
    verifier: ScramVerifier

    @classmethod
    def derive(cls, secret: str, salt: bytes, iterations: int, digest: str = "sha256") -> ScramKeys:
        """Derive the keys of one secret; takes about 2 ms."""
        salted = hashlib.pbkdf2_hmac(digest, secret.encode(), salt, iterations)
        verifier = ScramVerifier(*scram_keys(salted, digest), digest)
        return cls(hmac.digest(salted, b"Client Key", digest), verifier)

    def proof(self, auth_message: bytes) -> bytes:
        """What a client sends to show that it knows the secret."""
        digest = self.verifier.digest
        return _xor(self.client_key, hmac.digest(self.verifier.stored_key, auth_message, digest))


@lru_cache(maxsize=_CACHED_KEYS_MAX)
def _cluster_keys(secret: str, cluster_id: str) -> ScramKeys:
    return ScramKeys.derive(secret, cluster_id.encode(), ITERATIONS)


class SaslClient(Protocol):
    """The client's half of one exchange of a mechanism."""

    mechanism: str
    #: what to do where the broker refuses
    remedy: str

    def first(self) -> bytes:
        """Return the first message."""

    def take(self, answer: bytes, /) -> bytes | None:
        """Take an answer; returns the next message, or None: it is over. Raises ScramError."""


class PlainClient:
    """PLAIN: one message with the password itself. Source: RFC 4616."""

    mechanism = "PLAIN"

    def __init__(self, user: str, password: str, remedy: str) -> None:
        self._message = f"\0{user}\0{password}".encode()
        self.remedy = remedy

    def first(self) -> bytes:
        """Return the message."""
        return self._message

    def take(self, _answer: bytes) -> bytes | None:
        """End: there is nothing that the broker proves."""
        return None


class ScramClient:
    """The client's half of one exchange of SCRAM, with what it knows as a function of salt and iterations."""

    def __init__(
        self,
        user: str,
        mechanism: str,
        keys: Callable[[bytes, int], ScramKeys],
        remedy: str,
        nonce: str = "",
    ) -> None:
        """Prepare one exchange.

        Args:
            user: whose proof it is. mechanism: its name.
            keys: derives the keys of the salt and the number of iterations that the broker names; raises
                ScramError where they cannot be right.
            remedy: what to do where the broker refuses.
            nonce: printable and without a comma; made up when absent.
        """
        self.mechanism, self.remedy = mechanism, remedy
        self._derive = keys
        self._nonce = nonce or token_urlsafe(_NONCE_BYTES)
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._expected_signature = b""

    @classmethod
    def of_peer(cls, secret: str, cluster_id: str, *, nonce: str = "") -> ScramClient:
        """Prepare the exchange of a broker that knows a peer secret; another cluster's broker is refused."""

        def keys(salt: bytes, iterations: int) -> ScramKeys:
            if salt != cluster_id.encode():
                theirs = shown(salt.decode(errors="replace"))
                raise ScramError(
                    f"the broker is of cluster {theirs}, this process of cluster {shown(cluster_id)}",
                    "correct the address, or the cluster that this process belongs to",
                )
            if iterations != ITERATIONS:
                raise ScramError(f"the broker asks for {iterations} iterations", f"{ITERATIONS} are used")
            return _cluster_keys(secret, cluster_id)

        return cls(USER, MECHANISM, keys, "prove the peer secret that the cluster's brokers have", nonce)

    @classmethod
    def of_user(
        cls, user: str, password: str, mechanism: Mechanism, remedy: str, *, nonce: str = ""
    ) -> ScramClient:
        """Prepare the exchange of a user."""

        def keys(salt: bytes, iterations: int) -> ScramKeys:
            if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
                told = f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are done"
                raise ScramError(f"the broker asks for {iterations} iterations", told)
            return ScramKeys.derive(password, salt, iterations, mechanism.digest)

        return cls(user, mechanism.text, keys, remedy, nonce)

    def take(self, answer: bytes) -> bytes | None:
        """Take an answer; returns the second message, or None."""
        if not self._expected_signature:
            return self.final(answer)
        self.finish(answer)
        return None

    def first(self) -> bytes:
        """Return the first message."""
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the second message."""
        fields = _attributes(server_first, "rsi")
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the broker's nonce does not continue this one's", "it must follow RFC 5802")
        if _NUMBER.fullmatch(fields["i"]) is None:
            raise ScramError(f"the broker asks for {shown(fields['i'])} iterations", "it must be a number")
        keys = self._derive(_unbase64(fields["s"]), int(fields["i"]))
        without_proof = f"c={_base64(_GS2_HEADER.encode())},r={nonce}"
        auth_message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        self._expected_signature = keys.verifier.signature(auth_message)
        return f"{without_proof},p={_base64(keys.proof(auth_message))}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the broker knows the secret as well."""
        fields = _attributes(server_final, "v")
        if not hmac.compare_digest(_unbase64(fields["v"]), self._expected_signature):
            raise ScramError("the broker does not know the secret that is proved to it", self.remedy)


class Presented(NamedTuple):
    """What a server keeps of one user."""

    #: any of them is taken
    verifiers: Sequence[ScramVerifier]
    salt: bytes
    iterations: int
    #: when none of them is proved
    refusal: ScramError


class Exchange(Protocol):
    """The server's half of one exchange of a mechanism: feed it each message, send what it returns."""

    #: whose proof it is, once it has begun
    user: str
    #: True once the proof is complete; the last message must still be sent.
    authenticated: bool
    #: for how long the proof holds by itself, in milliseconds; 0: for ever
    lifetime_ms: int

    def answer(self, message: bytes) -> bytes:
        """Take one message of the client and return the answer; raises ScramError."""


class SaslServer(Protocol):
    """What a listener takes as proof."""

    #: Whether it is users that prove who they are; else brokers, that they are peers.
    names_users: bool

    @property
    def mechanisms(self) -> Sequence[str]:
        """What is offered."""

    def exchange(self, mechanism: str) -> Exchange:
        """Begin the exchange of one connection, by a mechanism that is offered."""


class ScramServer:
    """The secrets that a listener takes, and the start of an exchange for each connection."""

    names_users = False
    mechanisms = (MECHANISM,)

    def __init__(self, secrets: Sequence[str], cluster_id: str) -> None:
        """Keep the secrets, whose keys are derived once.

        Args:
            secrets: at least one; any of them is taken. They may be replaced later.
            cluster_id: of this broker.
        """
        if not secrets or not all(secrets):
            raise ValueError("a peer secret is empty: anybody could reach the broker listener")
        # No attribute, or else a repr could tell a secret.
        self._verifiers: Callable[[], list[ScramVerifier]] = lambda: [
            _cluster_keys(secret, cluster_id).verifier for secret in secrets
        ]
        self._salt = cluster_id.encode()
        self._refusal = ScramError("the client does not know the peer secret", _SAME_FILE)

    def exchange(self, mechanism: str = MECHANISM, *, nonce: str = "") -> ScramExchange:
        """Begin the exchange of one connection."""
        assert mechanism == MECHANISM, "no other is offered"
        return ScramExchange(self._find, nonce)

    def _find(self, user: str) -> Presented:
        if user != USER:
            raise ScramError(f"user {shown(user)} is not known", f"the user is {USER}")
        return Presented(self._verifiers(), self._salt, ITERATIONS, self._refusal)


class ScramExchange:
    """The server's half of one exchange."""

    def __init__(self, find: Callable[[str], Presented], nonce: str = "") -> None:
        """Begin; `find` returns what is kept of a user, or raises ScramError."""
        self._find = find
        self._nonce = nonce or token_urlsafe(_NONCE_BYTES)
        self._header = ""
        self._first_messages = ""
        self._presented: Presented | None = None
        self._failed = False
        self.user = ""
        self.authenticated = False
        self.lifetime_ms = 0

    def answer(self, message: bytes) -> bytes:
        """Take one message of the client and return the answer."""
        if self._failed or self.authenticated:
            raise ScramError("the exchange is over", "open another connection")
        try:
            if self._presented is None:
                return self._first(message)
            return self._final(message, self._presented)
        except ScramError:
            self._failed = True
            raise

    def _first(self, message: bytes) -> bytes:
        text = _text(message)
        header = _GS2.match(text)
        if header is None:
            raise ScramError("channel binding is asked for", "it is not offered")
        self._header, bare = header[0], text[header.end() :]
        fields = _attributes(bare.encode(), "nr")
        self.user = _name(fields["n"])
        if header[1] is not None and _name(header[1]) != self.user:
            raise ScramError("another identity is asked for", "users are themselves alone")
        if not fields["r"]:
            raise ScramError("the nonce is empty", "the client must follow RFC 5802")
        found = self._find(self.user)
        self._nonce = fields["r"] + self._nonce
        answer = f"r={self._nonce},s={_base64(found.salt)},i={found.iterations}"
        self._first_messages = f"{bare},{answer}"
        self._presented = found
        return answer.encode()

    def _final(self, message: bytes, presented: Presented) -> bytes:
        fields = _attributes(message, "crp")
        if fields["c"] != _base64(self._header.encode()) or fields["r"] != self._nonce:
            raise ScramError("the messages are not those of one exchange", "the client must follow RFC 5802")
        without_proof = _text(message).rpartition(",p=")[0]
        auth_message = f"{self._first_messages},{without_proof}".encode()
        proof = _unbase64(fields["p"])
        proved = [each for each in presented.verifiers if each.proves(proof, auth_message)]
        if not proved:
            raise presented.refusal
        self.authenticated = True
        return f"v={_base64(proved[0].signature(auth_message))}".encode()


def _name(written: str) -> str:
    """Read a user's name, in which "," and "=" stand as "=2C" and "=3D"."""
    if not written or _ESCAPES.fullmatch(written) is None:
        raise ScramError(f"user {shown(written)} is no name", "the client must follow RFC 5802")
    return written.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(
            f"a message of {len(message)} bytes", f"messages of {MESSAGE_BYTES_MAX} bytes are read"
        )
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramError("a message is not UTF-8", "the sender must follow RFC 5802") from error


def _attributes(message: bytes, names: str) -> dict[str, str]:
    """Read `n=value` attributes; these names must be there, in this order, and extensions may follow."""
    parts = [part.partition("=") for part in _text(message).split(",")]
    found = {name: value for name, _, value in parts}
    if "e" in found:
        raise ScramError(f"the other side says {shown(found['e'])}", _SAME_FILE)
    first = [name for name, _, _ in parts if name in set(names)]
    if first != list(names) or len(found) != len(parts):
        raise ScramError(f"a message without {','.join(names)}", "the sender must follow RFC 5802")
    return found


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScramError("a value is not base64", "the sender must follow RFC 5802") from error


def _xor(left: bytes, right: bytes) -> bytes:
    """Combine bytes; different lengths never prove anything."""
    return bytes(a ^ b for a, b in zip(left, right, strict=False))
