"""Who may ask an admin port what: tokens and certificates, each with a role.

Reads the files that say so at the start, and again on SIGHUP and every minute; a bad one keeps what was, with
one warning a change. Checks the settings, which nodes and brokers have alike: off loopback users prove their
identity, over a connection that is encrypted. Soft state only.
"""

from __future__ import annotations

import hmac
import logging
import re
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from quorum.config.address import Address, is_loopback
from quorum.config.last_good import LastGood
from quorum.config.sasl_users import SUBJECT
from quorum.config.secrets import SECRET_BYTES_MIN, lines_of, read_secret
from quorum.config.tls import TlsSection
from quorum.errors import ConfigError, ConfigProblem

log = logging.getLogger("quorate.security")

_FILE: Final = "security.admin_tokens_file"
_OLDER: Final = ("admin_operate_token_file", "admin_read_token_file")
_REMEDY: Final = 'write lines "NAME ROLE TOKEN" or "NAME ROLE dn:SUBJECT"; a token: openssl rand -hex 32'
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}", re.ASCII)
_SUBJECT_MARK: Final = "dn:"
_TOKEN_CHARS_MAX: Final = 4096


class AdminRole(IntEnum):
    """What a caller may do; each may do what those before it may."""

    #: everything that changes nothing, also the history of all data but users; no snapshots, which have them
    READER = 1
    #: change data, topics and who leads
    OPERATOR = 2
    #: change members, users and access lists; import a cluster
    ADMIN = 3


class AdminHolder(NamedTuple):
    """Somebody who may ask.

    Attributes:
        name: as the file has it. token: that it proves; b"": none. subject: of its certificate; "": none.
        is_named: whether somebody chose the name: the two older files have none.
    """

    name: str
    role: AdminRole
    token: bytes = b""
    subject: str = ""
    is_named: bool = True

    @property
    def identity(self) -> tuple[str, str] | None:
        """As whom it counts in access lists of znodes: (scheme, id); None: as nobody."""
        if not self.is_named:
            return None
        return ("x509", self.subject) if self.subject else ("sasl", self.name)


class AdminPortSettings(Protocol):
    """The settings of [security] about the admin port."""

    @property
    def admin_tokens_file(self) -> Path | None:
        """Tokens and certificates with roles."""

    @property
    def admin_operate_token_file(self) -> Path | None:
        """One token, of an admin."""

    @property
    def admin_read_token_file(self) -> Path | None:
        """One token, of a reader."""

    @property
    def admin_ssl(self) -> bool:
        """Whether the port speaks TLS."""

    @property
    def admin_behind_proxy(self) -> bool:
        """Whether a proxy before it encrypts."""


class AdminHolders:
    """Everybody who may ask one admin port."""

    def __init__(self, settings: AdminPortSettings) -> None:
        """Read the files.

        Raises:
            ConfigError: one is wrong.
        """
        self._holders = LastGood(partial(_read_holders, settings))

    def by_token(self, token: bytes) -> AdminHolder | None:
        """Return whose token it is."""
        found = None
        for holder in self._holders.value:
            # All are compared, whatever the first ones said.
            if holder.token and hmac.compare_digest(token, holder.token):
                found = found or holder
        return found

    def by_subject(self, subject: str) -> AdminHolder | None:
        """Return whose certificate it is; one without a subject is nobody's."""
        return next((each for each in self._holders.value if each.subject and each.subject == subject), None)

    def has(self, holder: AdminHolder) -> bool:
        """Tell whether somebody may still ask, with the same role and proof."""
        return holder in self._holders.value

    def reload(self) -> None:
        """Read the files again; they count for the next request."""
        if self._holders.reload():
            log.info("the tokens of the admin port are read again: %d", len(self._holders.value))


def admin_holders(settings: AdminPortSettings) -> AdminHolders | None:
    """Return who may ask; None: everybody may.

    Raises:
        ConfigError: a file is wrong.
    """
    has_older = settings.admin_operate_token_file and settings.admin_read_token_file
    return AdminHolders(settings) if settings.admin_tokens_file or has_older else None


def check_admin_port(
    admin: Address | None,
    settings: AdminPortSettings,
    tls: TlsSection | None,
    problems: list[ConfigProblem],
) -> None:
    """Note what is wrong with the tokens, or missing where the port is not on loopback.

    Args:
        admin: listen.admin; None: it is malformed itself.
        settings: of [security]. tls: [tls.admin]; None: it is wrong itself.
        problems: gets what is wrong.
    """
    older = {key: getattr(settings, key) for key in _OLDER}
    for key, path in older.items():
        if path is not None:
            try:
                _read_older(path, key)
            except ConfigError as error:
                problems.extend(error.problems)
    if settings.admin_tokens_file is not None:
        _check_tokens_file(settings.admin_tokens_file, settings, tls, problems)
    missing = [key for key, path in older.items() if path is None]
    if admin is not None and not is_loopback(admin):
        lacking = [] if settings.admin_tokens_file or not missing else ["admin_tokens_file"]
        if not (settings.admin_ssl or settings.admin_behind_proxy):
            lacking.append("admin_ssl (or admin_behind_proxy)")
        if lacking:
            problem = f"is not on loopback, and {', '.join(f'security.{key}' for key in lacking)} is not set"
            remedy = (
                "listen on 127.0.0.1, or give tokens, and TLS (admin_ssl = true) or a proxy that "
                "encrypts (admin_behind_proxy = true)"
            )
            problems.append(ConfigProblem("listen.admin", str(admin), problem, remedy))
    if len(missing) == 1:
        problem = "is not set, and the other token is"
        problems.append(ConfigProblem(f"security.{missing[0]}", '""', problem, "give both tokens, or none"))


def _check_tokens_file(
    path: Path, settings: AdminPortSettings, tls: TlsSection | None, problems: list[ConfigProblem]
) -> None:
    try:
        holders = read_tokens_file(path)
    except ConfigError as error:
        problems.extend(error.problems)
        return
    by_certificate = next((each for each in holders if each.subject), None)
    if by_certificate is None or tls is None:
        return
    if not settings.admin_ssl:
        remedy = "set security.admin_ssl = true, or give a token"
    elif tls.client_auth == "none":
        remedy = "set tls.admin.client_auth to want or need, or give a token"
    else:
        return
    problem = f"names a certificate ({by_certificate.name}), and the admin port asks for none"
    problems.append(ConfigProblem(_FILE, str(path), problem, remedy))


def _read_holders(settings: AdminPortSettings) -> list[AdminHolder]:
    found = []
    for key, name, role in zip(_OLDER, ("operate", "read"), (AdminRole.ADMIN, AdminRole.READER), strict=True):
        path = getattr(settings, key)
        if path is not None:
            found.append(AdminHolder(name, role, _read_older(path, key), is_named=False))
    if settings.admin_tokens_file is not None:
        found += read_tokens_file(settings.admin_tokens_file)
    return found


def _read_older(path: Path, key: str) -> bytes:
    return read_secret(path, f"security.{key}", f"openssl rand -hex 32 > {path}; chmod 600 {path}")


def read_tokens_file(path: Path) -> list[AdminHolder]:
    """Return who is named by a file; empty lines and those that begin with # do not count.

    Raises:
        ConfigError: it cannot be read, is open to others, or has a line that says something else. No token is
            in its text.
    """
    found: list[AdminHolder] = []
    for number, line in lines_of(path, _FILE, _REMEDY):

        def wrong(problem: str, remedy: str = _REMEDY, at: int = number) -> ConfigError:
            return ConfigError(_FILE, str(path), f"line {at} {problem}", remedy)

        parts = line.split(None, 2)
        if len(parts) != 3:
            raise wrong(f"has {len(parts)} words; three are needed")
        name, role, proof = parts
        if not _NAME.fullmatch(name):
            raise wrong("begins with no name of 1 to 64 letters, digits, dots, dashes, @")
        if role.upper() not in AdminRole.__members__ or role != role.lower():
            raise wrong(f"gives {name} a role that is none of reader, operator, admin")
        if any(each.name == name for each in found):
            raise wrong(f"names {name} again", "keep one of them")
        holder = AdminHolder(name, AdminRole[role.upper()])
        if proof.startswith(_SUBJECT_MARK):
            subject = proof.removeprefix(_SUBJECT_MARK)
            if not subject or not re.fullmatch(SUBJECT, subject):
                raise wrong(f"gives {name} no subject as RFC 2253 writes it", 'as "dn:CN=alice,O=x"')
            holder = holder._replace(subject=subject)
        else:
            if not re.fullmatch(rf"[!-~]{{{SECRET_BYTES_MIN},{_TOKEN_CHARS_MAX}}}", proof, re.ASCII):
                raise wrong(f"gives {name} no token of {SECRET_BYTES_MIN} or more ASCII characters")
            holder = holder._replace(token=proof.encode())
        twin = next((each for each in found if each[2:] == holder[2:]), None)
        if twin is not None:
            raise wrong(f"gives {name} what {twin.name} proves", "give each its own")
        found.append(holder)
    if not found:
        raise ConfigError(_FILE, str(path), "names nobody", _REMEDY)
    return found
