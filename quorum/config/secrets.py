"""Small files, and secrets in files of their own: how they are read, and which files are refused.

Decides that a secret is long enough and not open to every user of the machine. What it is for is its reader's
to know. No state.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quorum.errors import ConfigError, remedy_for_os

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096
#: of one file: the present one, the next, and what a replacement that was broken off has left
PEER_SECRETS_MAX = 4
#: of a file of users or tokens: some ten thousand
_LINES_BYTES_MAX: Final = 1024 * 1024
#: bits of a mode: who may read, write or run a file besides its owner, and besides its group
OTHERS: Final = 0o077
EVERY_USER: Final = 0o007


def read_small(path: Path, field: str, bytes_max: int, remedy: str, *, closed_to: int = OTHERS) -> bytes:
    """Read a file.

    Args:
        path: of the file. field: the setting or option that names it.
        bytes_max: that it should have; one more is read, so that its reader can tell.
        remedy: where it is missing, or no file.
        closed_to: OTHERS, EVERY_USER, or 0: anybody may read it.

    Raises:
        ConfigError: it cannot be read, or others may read it who may not.
    """
    try:
        found = path.stat()
        mode, owner_id = found.st_mode, found.st_uid
        if not stat.S_ISREG(mode):
            raise ConfigError(field, str(path), "is no regular file", remedy)
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        # One that is there and cannot be read may be in use: it must not be made anew.
        told = remedy if isinstance(error, FileNotFoundError) else remedy_for_os(error)
        raise ConfigError(field, str(path), f"cannot be read: {error.strerror}", told) from error
    if mode & closed_bits(closed_to, owner_id, os.geteuid()):
        whom = "every user" if closed_to == EVERY_USER else "other users"
        raise ConfigError(field, str(path), f"is open to {whom} of the machine", f"chmod 600 {path}")
    return content


def closed_bits(closed_to: int, owner_id: int, user_id: int) -> int:
    """Return which bits of a mode a file must not have.

    A file of root's that another user reads was given to that user's group by root: secrets that Kubernetes
    mounts are such files.

    Args:
        closed_to: OTHERS, EVERY_USER or 0.
        owner_id: of the file. user_id: who reads it.
    """
    return closed_to & ~stat.S_IRGRP if owner_id == 0 != user_id else closed_to


def lines_of(path: Path, field: str, remedy: str) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines of a private file that say something: not those that begin with #.

    Raises:
        ConfigError: it cannot be read, is open to others, or has more than a MiB.
    """
    content = read_small(path, field, _LINES_BYTES_MAX, remedy)
    if len(content) > _LINES_BYTES_MAX:
        raise ConfigError(field, str(path), f"has more than {_LINES_BYTES_MAX} bytes", remedy)
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


def read_secret(path: Path, field: str, make: str) -> bytes:
    """Read a secret.

    Args:
        path: its file.
        field: the setting that names it.
        make: how to make one, for the remedy.

    Returns:
        At least SECRET_BYTES_MIN bytes, without surrounding white space.

    Raises:
        ConfigError: missing, unreadable, too short, too long, or readable for every user of the machine.
    """
    secret = read_small(path, field, SECRET_BYTES_MAX, make, closed_to=EVERY_USER).strip()
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        problem = f"holds {len(secret)} bytes; a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        raise ConfigError(field, str(path), problem, make)
    return secret
