"""What Kafka's users prove themselves by, as one znode for each user: /config/users/NAME.

Pure. The value holds no password, only what SCRAM derives from it; who reads it may try passwords offline, so
it is for the brokers alone (quorum.metadata.protection). Other settings in it, as quotas, stay as they are.
Source: kafka.zk.ZkAdminManager, ScramCredentialUtils, Sanitizer (Kafka 3.9); RFC 5802.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from quorum.metadata.decode import JsonFields
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import CONFIG_USERS

#: what requests may ask for
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
#: of a password that `quorate users` sets, and of users that do not exist
ITERATIONS: Final = 8192
#: bytes of a salt that Quorate makes
SALT_BYTES: Final = 16


class Mechanism(IntEnum):
    """The numbers of SCRAM's mechanisms in requests."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """The name, "SCRAM-SHA-256"."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The hash, as hashlib calls it."""
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"


#: {name: mechanism}
SCRAM_MECHANISMS: Final = {each.text: each for each in Mechanism}


def scram_keys(salted: bytes, digest: str) -> tuple[bytes, bytes]:
    """Return StoredKey and ServerKey of a salted secret."""
    client_key = hmac.digest(salted, b"Client Key", digest)
    return hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest)


class ScramCredential(NamedTuple):
    """What is kept of a password for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @classmethod
    def of(cls, mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Derive from a salted password."""
        return cls(salt, *scram_keys(salted, mechanism.digest), iterations)

    @classmethod
    def of_password(
        cls, mechanism: Mechanism, password: str, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Derive from a password; takes milliseconds."""
        salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
        return cls.of(mechanism, salted, salt, iterations)

    def encode(self) -> str:
        """Return the text of the setting."""
        keys = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = [f"{name}={base64.b64encode(value).decode('ascii')}" for name, value in keys.items()]
        return ",".join([*texts, f"iterations={self.iterations}"])

    @classmethod
    def decode(cls, path: str, mechanism: Mechanism, text: str) -> ScramCredential:
        """Read the text of the setting.

        Raises:
            MetadataDecodeError: it is malformed. The error does not show it.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = (
                base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(fields["iterations"][:10])
        except (KeyError, ValueError, binascii.Error):
            raise _malformed(path, mechanism) from None
        size = hashlib.new(mechanism.digest).digest_size
        if len(stored_key) != size or len(server_key) != size or not salt or not 1 <= iterations <= 10**6:
            raise _malformed(path, mechanism)
        return cls(salt, stored_key, server_key, iterations)


class UserRecord(NamedTuple):
    """The value of a user's znode, version 1: credentials and other settings."""

    #: {Kafka's name: text}
    settings: Mapping[str, str]

    def encode(self) -> bytes:
        """Return the JSON value."""
        return json.dumps({"version": 1, "config": dict(self.settings)}, separators=(",", ":")).encode(
            "ascii"
        )

    @classmethod
    def decode(cls, path: str, data: bytes | None) -> UserRecord:
        """Read the value at a path; a znode without a value is only the parent of others.

        Raises:
            MetadataDecodeError: the value is malformed. The error shows none of it.
        """
        if not data:
            return cls({})
        try:
            fields = JsonFields.parse(path, data)
            fields.integer("version", 1, 1)
            config = fields.nested("config")
            return cls({name: config.string(name) for name in config.names()})
        except MetadataDecodeError:
            raise MetadataDecodeError(path, "", "another thing", "Kafka's settings of a user") from None


def credentials_of(path: str, settings: Mapping[str, str]) -> dict[Mechanism, ScramCredential]:
    """Return {mechanism: credential} of a user's settings.

    Raises:
        MetadataDecodeError: one is malformed.
    """
    return {
        mechanism: ScramCredential.decode(path, mechanism, settings[name])
        for name, mechanism in SCRAM_MECHANISMS.items()
        if name in settings
    }


def with_credentials(path: str, data: bytes | None, credentials: Mapping[str, str]) -> bytes:
    """Return the value of a user's znode with these credentials and no others; what else it holds stays.

    Args:
        path: of the znode.
        data: its value, None without a znode.
        credentials: {name of a mechanism: text of its credential}

    Raises:
        MetadataDecodeError: the present value is malformed.
    """
    kept = {} if data is None else UserRecord.decode(path, data).settings
    others = {name: text for name, text in kept.items() if name not in SCRAM_MECHANISMS}
    return UserRecord({**others, **credentials}).encode()


def segment_of(name: str) -> str:
    """Return how the znode of a user or a client id is named: escaped as by Kafka's Sanitizer."""
    return quote(name, safe="").replace("~", "%7E")


def user_path(user: str) -> str:
    """Path of a user's settings."""
    return f"{CONFIG_USERS}/{segment_of(user)}"


def user_at(path: str) -> str | None:
    """Return the user whose settings a znode holds; None: it is another znode."""
    segment = path.removeprefix(f"{CONFIG_USERS}/")
    if segment == path or "/" in segment:
        return None
    user = unquote(segment)
    return user if user_path(user) == path else None


def _malformed(path: str, mechanism: Mechanism) -> MetadataDecodeError:
    wanted = "salt, stored_key, server_key in base64, and iterations"
    return MetadataDecodeError(path, f"config.{mechanism.text}", "another thing", wanted)
