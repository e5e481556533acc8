"""Users of an admin port off loopback prove their identity, over a connection that is encrypted.

Checks the settings that say so, which nodes and brokers have alike. Reads the files of tokens; keeps
nothing.
"""

from __future__ import annotations

from pathlib import Path

from quorum.config.address import Address, is_loopback
from quorum.config.secrets import read_secret
from quorum.errors import ConfigError, ConfigProblem

_FILES = ("admin_operate_token_file", "admin_read_token_file")


def read_admin_tokens(operate: Path | None, read: Path | None) -> tuple[bytes, bytes] | None:
    """Return the tokens for everything and for reading; None where the port needs none.

    Raises:
        ConfigError: a file cannot be read.
    """
    if operate is None or read is None:
        return None
    return _read(operate, _FILES[0]), _read(read, _FILES[1])


def check_admin_port(
    admin: Address | None,
    paths: tuple[Path | None, Path | None],
    problems: list[ConfigProblem],
    *,
    is_encrypted: bool,
) -> None:
    """Note what is wrong with the tokens, or missing where the port is not on loopback.

    Args:
        admin: listen.admin; None: it is malformed itself.
        paths: files of the tokens for everything and for reading; None: no token is needed.
        problems: gets what is wrong.
        is_encrypted: whether the port, or a proxy before it, does.
    """
    files = dict(zip(_FILES, paths, strict=True))
    for key, path in files.items():
        if path is None:
            continue
        try:
            _read(path, key)
        except ConfigError as error:
            problems.extend(error.problems)
    missing = [key for key, path in files.items() if path is None]
    if admin is not None and not is_loopback(admin):
        missing += [] if is_encrypted else ["admin_ssl (or admin_behind_proxy)"]
        if missing:
            problem = f"is not on loopback, and {', '.join(f'security.{key}' for key in missing)} is not set"
            remedy = (
                "listen on 127.0.0.1, or give two tokens, and TLS (admin_ssl = true) or a proxy that "
                "encrypts (admin_behind_proxy = true)"
            )
            problems.append(ConfigProblem("listen.admin", str(admin), problem, remedy))
    elif len(missing) == 1:
        problem = "is not set, and the other token is"
        problems.append(ConfigProblem(f"security.{missing[0]}", '""', problem, "give both tokens, or none"))


def _read(path: Path, key: str) -> bytes:
    return read_secret(path, f"security.{key}", f"openssl rand -hex 32 > {path}; chmod 600 {path}")
