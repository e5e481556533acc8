"""Who may prove a password by SASL: the file security.sasl_users_file, lines of htdigest. And which settings
of [security] about clients fit each other.

The file is read at the start, again on SIGHUP and every minute; a bad one keeps what was, with one warning a
change. Knows no password, and nothing of how one is proved. Soft state only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from quorum.config.address import Address, is_loopback
from quorum.config.last_good import LastGood
from quorum.config.secrets import lines_of
from quorum.errors import ConfigError, ConfigProblem

log = logging.getLogger("quorate.security")

#: by what a client may have to prove itself
SCHEMES: Final = ("sasl", "x509", "digest", "ip")
#: of them, what everybody can prove: an address, and any name with any password
_EVERYBODYS: Final = frozenset(("ip", "digest"))

#: of every user, as ZooKeeper's clients know it
REALM: Final = "zk-sasl-md5"
#: the subject of a certificate without superfluous spaces: as a subject is written that is compared
SUBJECT: Final = r"|[A-Z0-9.]+=(?:[^,+]|\\[,+]|[,+](?=[A-Z0-9.]+=))+"
_FIELD: Final = "security.sasl_users_file"
_REQUIRE: Final = "security.session_require_client_sasl_auth"
_REMEDY: Final = "write lines as quorate users digest NAME prints them"
#: a name without a colon, the realm of ZooKeeper's clients, and the hash
_LINE: Final = re.compile(r"([!-9;-~]{1,255}):zk-sasl-md5:([0-9a-fA-F]{32})", re.ASCII)


def user_line(name: str, password: str) -> str:
    """Return the line of a user."""
    hashed = hashlib.md5(f"{name}:{REALM}:{password}".encode(), usedforsecurity=False).hexdigest()
    return f"{name}:{REALM}:{hashed}"


class SaslUsers:
    """The users of one file."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            ConfigError: it is wrong.
        """
        self._hashes = LastGood(partial(read_sasl_users, path))

    def get(self, name: str) -> str | None:
        """Return the hash of a user, 32 hexadecimal digits; None: there is no such user."""
        return self._hashes.value.get(name)

    def reload(self) -> None:
        """Read the file again; it counts for proofs from now on."""
        if self._hashes.reload():
            log.info("%s is read again: %d users", _FIELD, len(self._hashes.value))


def read_sasl_users(path: Path) -> dict[str, str]:
    """Return {name: hash} of a file; empty lines and those that begin with # do not count.

    Raises:
        ConfigError: it cannot be read, is open to others, or has a line that is none of htdigest.
    """
    found: dict[str, str] = {}
    for number, text in lines_of(path, _FIELD, _REMEDY):
        matched = _LINE.fullmatch(text)
        if matched is None:
            problem = f"line {number} is not NAME:zk-sasl-md5:HASH"
            raise ConfigError(_FIELD, str(path), problem, _REMEDY)
        name = matched[1]
        if name in found:
            raise ConfigError(_FIELD, str(path), f"line {number} names {name!r} again", "keep one of them")
        found[name] = matched[2].lower()
    if not found:
        raise ConfigError(_FIELD, str(path), "names no user", _REMEDY)
    return found


class ProofSettings(Protocol):
    """The settings of [security] about how clients prove themselves."""

    @property
    def sasl_users_file(self) -> Path | None:
        """Who proves a password by SASL."""

    @property
    def super_user(self) -> str:
        """A name of SASL, or ""."""

    @property
    def x509_super_user(self) -> str:
        """A subject, or ""."""

    @property
    def session_require_client_sasl_auth(self) -> bool:
        """Whether SASL must be proven."""

    @property
    def enforce_auth_schemes(self) -> tuple[str, ...]:
        """Of which schemes one must be proven."""


def required_schemes(security: ProofSettings) -> tuple[str, ...]:
    """Return by which schemes clients must prove themselves, by one of them; (): they need not."""
    return ("sasl",) if security.session_require_client_sasl_auth else security.enforce_auth_schemes


def what_is_open(client: Address | None, security: ProofSettings) -> str:
    """Return a warning that whoever reaches the plain port of clients is served; "": that is not so.

    Args:
        client: listen.client.
        security: the settings.
    """
    schemes = required_schemes(security)
    if client is None or is_loopback(client) or (schemes and not _EVERYBODYS.intersection(schemes)):
        return ""
    return (
        f"listen.client {client} is not on loopback, has no TLS, and serves whoever reaches it (set "
        'security.enforce_auth_schemes = ["sasl", "x509"] or one of them, or listen.secure_client instead)'
    )


def check_proofs(security: ProofSettings, problems: list[ConfigProblem], *, sees_certificates: bool) -> None:
    """Note what is wrong or half set of how clients prove themselves.

    Args:
        security: the settings. problems: gets what is wrong.
        sees_certificates: whether there is a TLS port for clients that asks for certificates.
    """
    if security.sasl_users_file is not None:
        try:
            read_sasl_users(security.sasl_users_file)
        except ConfigError as error:
            problems.extend(error.problems)
    schemes, enforced = security.enforce_auth_schemes, json.dumps(security.enforce_auth_schemes)
    if security.session_require_client_sasl_auth and schemes:
        problem = f"takes SASL alone, and security.enforce_auth_schemes is {enforced}"
        problems.append(ConfigProblem(_REQUIRE, "true", problem, "set one of the two"))
    wanted = [
        (_REQUIRE, "true" if security.session_require_client_sasl_auth else "", "sasl"),
        ("security.super_user", security.super_user, "sasl"),
        ("security.x509_super_user", security.x509_super_user, "x509"),
        *(("security.enforce_auth_schemes", enforced, scheme) for scheme in schemes),
    ]
    for field, value, scheme in wanted:
        if not value:
            continue
        if scheme == "sasl" and security.sasl_users_file is None:
            problem, remedy = "needs SASL, which nobody can prove without users", f"set {_FIELD}"
        elif scheme == "x509" and not sees_certificates:
            problem = "needs certificates of clients, and no port asks for them"
            remedy = "set listen.secure_client, and tls.client.client_auth to want or need"
        else:
            continue
        problems.append(ConfigProblem(field, value, problem, remedy))
