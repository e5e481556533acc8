"""What brokers recognize each other by: values that only a holder of the peer secret can make.

Anybody who reaches the quorum may write znodes there. So a registration and an entry of a queue carry
`hmac`: a MAC over its path, whose session owns it, and every other field. What carries none, or a
wrong one, is a stranger's and is not obeyed. From the secret follow one key for these MACs, the check value
by which a broker finds out that its secret is another cluster's, and a ZooKeeper digest for access lists. All
are HMACs by the salted secret with different constants, also different from SCRAM's: none tells another.

The secret is random, as `quorate up` makes it; iterations make a short one dearer to guess, not safe.
Pure: knows no znode and no time.
Source: RFC 2104; RFC 5802 (its constants, "Client Key" and "Server Key", are not used here).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from quorum.client import AccessEntry
from quorum.metadata.errors import MetadataDecodeError

ITERATIONS: Final = 4096
#: The field that carries the MAC.
FIELD: Final = "hmac"
#: User of the ZooKeeper digest.
DIGEST_USER: Final = "quorate"
_CACHED_SECRETS_MAX: Final = 32
_SIGNATURE: Final = b"Quorate Signature"
_READ: Final = 1
EVERYTHING: Final = 31


class Trust:
    """The peer secrets of a broker, as what follows from those that count now."""

    def __init__(self, secrets: Sequence[str], cluster_id: str) -> None:
        """Keep the secrets; each that is new to the process takes about 2 ms once.

        Args:
            secrets: at least one: the first signs, any of them is accepted. They may be replaced later.
            cluster_id: of /cluster/id.
        """
        if not secrets or not all(secrets):
            raise ValueError("a peer secret is empty: anybody could sign")
        self._secrets = secrets
        self._cluster_id = cluster_id

    @property
    def check_values(self) -> tuple[str, ...]:
        """One for each secret: what may be public."""
        return tuple(_text(each) for each in self._derived(b"Quorate Check"))

    @property
    def credentials(self) -> tuple[bytes, ...]:
        """One for each secret: what a client of the quorum proves by the scheme "digest"."""
        keys = self._derived(b"Quorate Znodes")
        return tuple(f"{DIGEST_USER}:{_text(each)}".encode() for each in keys)

    @property
    def holders(self) -> tuple[str, ...]:
        """One for each secret: how access lists name who has proved it."""
        return tuple(_digest_identity(each) for each in self.credentials)

    def access(self) -> list[AccessEntry]:
        """Return the access list of what all may read and only holders of the first secret may change."""
        return [AccessEntry(_READ, "world", "anyone"), *self.own_access()]

    def own_access(self) -> list[AccessEntry]:
        """Return the access list of what only holders of the first secret may read and change."""
        return [AccessEntry(EVERYTHING, "digest", self.holders[0])]

    def as_of_first(self, access: Sequence[AccessEntry]) -> list[AccessEntry]:
        """Return an access list with the first secret in the place of every other of these."""
        first, *others = self.holders
        renamed = [each._replace(identity=first) if each.identity in others else each for each in access]
        return list(dict.fromkeys(renamed))

    def sign(self, place: str, data: bytes, session_id: int = 0) -> bytes:
        """Return a JSON object with its MAC; every field is covered.

        Args:
            place: where it will stand; one that is copied to another place has a wrong MAC there.
            data: the object.
            session_id: of the session that will own it; 0 if none does.
        """
        value = json.loads(data)
        value[FIELD] = _text(self._mac(self._derived(_SIGNATURE)[0], place, value, session_id))
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    def is_signed(self, place: str, data: bytes | None, session_id: int = 0) -> bool:
        """Say whether a holder of a secret wrote this, for this place and this session."""
        return self.signer(place, data, session_id) is not None

    def signer(self, place: str, data: bytes | None, session_id: int = 0) -> int | None:
        """Return by which secret this was signed, 0 for the first; None: by none of them."""
        try:
            value = json.loads(data or b"")
            found = value[FIELD].encode("ascii")
            made = [_text(self._mac(key, place, value, session_id)) for key in self._derived(_SIGNATURE)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return next(
            (n for n, each in enumerate(made) if hmac.compare_digest(found, each.encode("ascii"))), None
        )

    def check_signed(self, place: str, data: bytes | None, session_id: int = 0) -> None:
        """See that a holder of a secret wrote this.

        Raises:
            MetadataDecodeError: no holder of a secret did.
        """
        if not self.is_signed(place, data, session_id):
            raise MetadataDecodeError(
                place, FIELD, "no proof of the peer secret", "what a broker of the cluster signs"
            )

    def made_up(self, text: str) -> bytes:
        """Return 32 bytes for a text, the same at every broker, which only holders of the secret know."""
        return hmac.digest(self._derived(_SIGNATURE)[0], b"made up " + text.encode(), "sha256")

    def _derived(self, constant: bytes) -> list[bytes]:
        """Return a key for each secret."""
        return [hmac.digest(_salted(each, self._cluster_id), constant, "sha256") for each in self._secrets]

    @staticmethod
    def _mac(key: bytes, place: str, value: dict[str, object], session_id: int) -> bytes:
        content = {name: each for name, each in value.items() if name != FIELD}
        signed = json.dumps([place, session_id, content], sort_keys=True, separators=(",", ":"))
        return hmac.digest(key, signed.encode("ascii"), "sha256")


def names_holders(entry: AccessEntry) -> bool:
    """Tell whether an entry of an access list is about holders of a peer secret, whichever."""
    return entry.scheme == "digest" and entry.identity.partition(":")[0] == DIGEST_USER


@lru_cache(maxsize=_CACHED_SECRETS_MAX)
def _salted(secret: str, cluster_id: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), cluster_id.encode(), ITERATIONS)


def _digest_identity(credentials: bytes) -> str:
    """Return how an access list names the holder of these credentials, as ZooKeeper writes it."""
    user = credentials.partition(b":")[0].decode()
    return f"{user}:{_text(hashlib.sha1(credentials).digest())}"  # noqa: S324 - ZooKeeper's own digest


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
