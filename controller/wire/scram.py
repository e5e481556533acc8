"""SCRAM-SHA-256 without a socket: how brokers prove to each other that they know the peer secret.

Both halves of the exchange, each fed with the other's messages. User, salt (the cluster id) and iterations
are fixed; a client refuses a broker that names others, because that broker is of another cluster. The client
proves the first of its secrets and the server takes any of its own, so a secret is replaced in three steps:
add the new one behind the old one everywhere, swap them everywhere, drop the old one. No message, error or
repr contains a secret. There is no channel binding.
Source: RFC 5802, RFC 7677.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_urlsafe
from typing import Final

from quorum.errors import Fault, QuorateError, shown

MECHANISM: Final = "SCRAM-SHA-256"
USER: Final = "quorate"
ITERATIONS: Final = 4096
#: Longest message of the exchange that either half reads.
MESSAGE_BYTES_MAX: Final = 4096
#: How many pairs of secret and cluster keep their keys: deriving them takes milliseconds.
_CACHED_KEYS_MAX: Final = 32
_NONCE_BYTES: Final = 24
_GS2_HEADER: Final = "n,,"
_SAME_FILE: Final = "give all brokers of the cluster the same peer_secret_file"


class ScramError(QuorateError):
    """The other side does not prove the secret, or does not follow the exchange."""

    fault = Fault.OPERATOR


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What is derived from a secret, so that the secret itself need not be kept."""

    client_key: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def derive(cls, secret: str, salt: bytes, iterations: int) -> ScramKeys:
        """Derive the keys of one secret; takes about 2 ms."""
        salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(
            client_key=client_key,
            stored_key=hashlib.sha256(client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", "sha256"),
        )

    def proof(self, auth_message: bytes) -> bytes:
        """What a client sends to show that it knows the secret."""
        return _xor(self.client_key, hmac.digest(self.stored_key, auth_message, "sha256"))

    def proves(self, proof: bytes, auth_message: bytes) -> bool:
        """Whether a proof was made with these keys."""
        client_key = _xor(proof, hmac.digest(self.stored_key, auth_message, "sha256"))
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self.stored_key)

    def signature(self, auth_message: bytes) -> bytes:
        """What a server sends to show that it knows the secret."""
        return hmac.digest(self.server_key, auth_message, "sha256")


@lru_cache(maxsize=_CACHED_KEYS_MAX)
def _cluster_keys(secret: str, cluster_id: str) -> ScramKeys:
    return ScramKeys.derive(secret, cluster_id.encode(), ITERATIONS)


class ScramClient:
    """The client's half of one exchange: first(), then final(answer), then finish(answer)."""

    def __init__(self, secret: str, cluster_id: str, *, nonce: str = "") -> None:
        """Prepare one exchange.

        Args:
            secret: the peer secret.
            cluster_id: of this process; a broker of another cluster is refused.
            nonce: printable and without a comma; made up when absent.
        """
        self._keys = _cluster_keys(secret, cluster_id)
        self._cluster_id = cluster_id
        self._nonce = nonce or token_urlsafe(_NONCE_BYTES)
        self._first_bare = f"n={USER},r={self._nonce}"
        self._expected_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the second message."""
        fields = _attributes(server_first, "rsi")
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the broker's nonce does not continue this one's", "it must follow RFC 5802")
        salt = _unbase64(fields["s"])
        if salt != self._cluster_id.encode():
            theirs = shown(salt.decode(errors="replace"))
            raise ScramError(
                f"the broker is of cluster {theirs}, this process of cluster {shown(self._cluster_id)}",
                "correct the address, or the cluster that this process belongs to",
            )
        if fields["i"] != str(ITERATIONS):
            raise ScramError(f"the broker asks for {shown(fields['i'])} iterations", f"{ITERATIONS} are used")
        without_proof = f"c={_base64(_GS2_HEADER.encode())},r={nonce}"
        auth_message = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        self._expected_signature = self._keys.signature(auth_message)
        return f"{without_proof},p={_base64(self._keys.proof(auth_message))}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the broker knows the secret as well."""
        fields = _attributes(server_final, "v")
        if not hmac.compare_digest(_unbase64(fields["v"]), self._expected_signature):
            raise ScramError("the broker does not know the peer secret", _SAME_FILE)


class ScramServer:
    """The secrets that a listener takes, and the start of an exchange for each connection."""

    def __init__(self, secrets: Sequence[str], cluster_id: str) -> None:
        """Derive the keys.

        Args:
            secrets: at least one; any of them is taken.
            cluster_id: of this broker.
        """
        if not secrets or not all(secrets):
            raise ValueError("a peer secret is empty: anybody could reach the broker listener")
        self._keys = [_cluster_keys(secret, cluster_id) for secret in secrets]
        self._salt = _base64(cluster_id.encode())

    def exchange(self, *, nonce: str = "") -> ScramExchange:
        """Begin the exchange of one connection."""
        return ScramExchange(self._keys, self._salt, nonce or token_urlsafe(_NONCE_BYTES))


class ScramExchange:
    """The server's half of one exchange: feed it each message, send what it returns."""

    def __init__(self, keys: Sequence[ScramKeys], salt: str, nonce: str) -> None:
        self._keys = keys
        self._salt = salt
        self._nonce = nonce
        self._first_messages = ""
        self._failed = False
        #: True once the client has proved a secret; the last message must still be sent.
        self.authenticated = False

    def answer(self, message: bytes) -> bytes:
        """Take one message of the client and return the answer."""
        if self._failed or self.authenticated:
            raise ScramError("the exchange is over", "open another connection")
        try:
            return self._final(message) if self._first_messages else self._first(message)
        except ScramError:
            self._failed = True
            raise

    def _first(self, message: bytes) -> bytes:
        text = _text(message)
        if not text.startswith(_GS2_HEADER):
            raise ScramError("channel binding or another identity is asked for", "neither is offered")
        bare = text.removeprefix(_GS2_HEADER)
        fields = _attributes(bare.encode(), "nr")
        if fields["n"] != USER:
            raise ScramError(f"user {shown(fields['n'])} is not known", f"the user is {USER}")
        if not fields["r"]:
            raise ScramError("the nonce is empty", "the client must follow RFC 5802")
        self._nonce = fields["r"] + self._nonce
        answer = f"r={self._nonce},s={self._salt},i={ITERATIONS}"
        self._first_messages = f"{bare},{answer}"
        return answer.encode()

    def _final(self, message: bytes) -> bytes:
        fields = _attributes(message, "crp")
        if fields["c"] != _base64(_GS2_HEADER.encode()) or fields["r"] != self._nonce:
            raise ScramError("the messages are not those of one exchange", "the client must follow RFC 5802")
        without_proof = _text(message).rpartition(",p=")[0]
        auth_message = f"{self._first_messages},{without_proof}".encode()
        proof = _unbase64(fields["p"])
        proved = [keys for keys in self._keys if keys.proves(proof, auth_message)]
        if not proved:
            raise ScramError("the client does not know the peer secret", _SAME_FILE)
        self.authenticated = True
        return f"v={_base64(proved[0].signature(auth_message))}".encode()


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
