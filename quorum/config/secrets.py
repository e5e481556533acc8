"""Secrets in files of their own: how they are read, and which files are refused.

Decides that a secret is long enough and not open to every user of the machine. What it is for is its reader's
to know. No state.
"""

from __future__ import annotations

import stat
from pathlib import Path

from quorum.errors import ConfigError, remedy_for_os

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096
#: of one file: the present one, the next, and what a replacement that was broken off has left
PEER_SECRETS_MAX = 4


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
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(field, str(path), "is no regular file", f"name another one, and {make}")
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        # A secret that is there and cannot be read is in use: it must not be made anew.
        remedy = make if isinstance(error, FileNotFoundError) else remedy_for_os(error)
        raise ConfigError(field, str(path), f"cannot be read: {error.strerror}", remedy) from error
    if mode & 0o007:
        remedy = f"chmod 600 {path}"
        raise ConfigError(field, str(path), "is open to every user of the machine", remedy)
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        problem = f"holds {len(secret)} bytes; a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}"
        raise ConfigError(field, str(path), problem, make)
    return secret
