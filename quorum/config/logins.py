"""By which name and password a process proves who it is where it dials: pairs of a name and a file.

The file holds the password alone, in one line, mode 0600. It is read for each connection again; a bad one
keeps what was, with one warning a change. Knows nothing of how a password is proved. Soft state only.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Final

from quorum.config.last_good import LastGood
from quorum.config.secrets import read_small
from quorum.errors import ConfigError, ConfigProblem, UsageError

PASSWORD_BYTES_MAX: Final = 1024
#: by which settings a broker proves itself to the quorum
QUORUM_LOGIN: Final = ("quorum.sasl_username", "quorum.sasl_password_file")
_PASSWORD: Final = re.compile(r"[ -~]+")
_NAME: Final = re.compile(r"[!-9;-~]{1,255}")
_REMEDY: Final = "write the password alone into it, in one line of printable ASCII"


class FileLogin:
    """A name, and a password in a file."""

    def __init__(self, name: str, path: Path, field: str) -> None:
        """Read the file.

        Args:
            name: of the user. path: of the file. field: the setting or option that names it.

        Raises:
            ConfigError: the file is wrong.
        """
        self.name = name
        #: what makes it another login
        self._source = name, path
        # Partial, so that Spark can send it to its workers.
        self._password = LastGood(partial(read_password, path, field))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileLogin) and self._source == other._source

    def __hash__(self) -> int:
        return hash(self._source)

    def password(self) -> str:
        """Return the password as the file has it now, or as it was when the file was right."""
        self._password.reload()
        return self._password.value


#: by what a command proves itself to the quorum that it dials; None: by nothing
PROVING: Final = ContextVar[FileLogin | None]("proving", default=None)


def read_password(path: Path, field: str) -> str:
    """Return the password in a file.

    Raises:
        ConfigError: it cannot be read, is open to others, or holds something else.
    """
    content = read_small(path, field, PASSWORD_BYTES_MAX + 1, _REMEDY)
    password = content.decode("ascii", "replace").rstrip("\r\n")
    if len(password) > PASSWORD_BYTES_MAX or not _PASSWORD.fullmatch(password):
        raise ConfigError(field, str(path), "holds no password", _REMEDY)
    return password


def read_login(name: str | None, path: Path | None, options: tuple[str, str]) -> FileLogin | None:
    """Return the login that two options of a command mean; None: neither is given.

    Args:
        name: "": as None. path: of the password's file. options: how they are called.

    Raises:
        UsageError: one is missing, or wrong.
    """
    problems: list[ConfigProblem] = []
    check_login(name or "", path, options, problems)
    if problems:
        first = problems[0]
        value = f" {first.value}" if first.value != '""' else ""
        raise UsageError(f"{first.field}{value} {first.problem}", first.remedy)
    return None if path is None else FileLogin(name or "", path, options[1])


def check_login(name: str, path: Path | None, fields: tuple[str, str], problems: list[ConfigProblem]) -> None:
    """Note what is wrong or half set of a name and the file of its password.

    Args:
        name: "": nothing is proved. path: of the file; None: not set.
        fields: the settings of both. problems: gets what is wrong.
    """
    if name and not _NAME.fullmatch(name):
        remedy = "give 1 to 255 letters, digits and signs of ASCII, without colon and space"
        problems.append(ConfigProblem(fields[0], name, "is no name of a user", remedy))
    if bool(name) != (path is not None):
        missing, other = fields if not name else fields[::-1]
        problems.append(ConfigProblem(missing, '""', f"is not set, and {other} is", "give both, or none"))
    elif path is not None:
        try:
            read_password(path, fields[1])
        except ConfigError as error:
            problems.extend(error.problems)
