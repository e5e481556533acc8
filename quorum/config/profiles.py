"""Profiles: what a command dials and proves, under a name, so that nobody types it each time.

A table of a TOML file for each name; what the command line says beats it. Decides which keys there are, which
option of which command each stands for, and who may read the file. Dials nothing. No state.
"""

from __future__ import annotations

import argparse
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from quorum.config.settings import nearest
from quorum.errors import UsageError, remedy_for_os, shown

DEFAULT_FILE: Final = "~/.config/quorate/profiles.toml"
#: environment: the profile, and the file
NAME_VARIABLE: Final = "QUORATE_PROFILE"
FILE_VARIABLE: Final = "QUORATE_PROFILE_FILE"
_FILE_BYTES_MAX: Final = 1024 * 1024


class _Key(NamedTuple):
    """What a key stands for.

    Attributes:
        option: of commands. dest: its name among their arguments.
        is_address: it counts where a command dials anyway, and turns nothing on.
        is_file, is_secret: whether its value is a path, and of a secret.
    """

    option: str
    dest: str
    is_address: bool = False
    is_file: bool = False
    is_secret: bool = False


_KEYS: Final = {
    "hosts": _Key("--hosts", "hosts", is_address=True),
    "bootstrap_servers": _Key("--bootstrap", "bootstrap", is_address=True),
    "admin": _Key("--admin", "admin", is_address=True),
    "ca": _Key("--ca", "ca", is_file=True),
    "cert": _Key("--cert", "cert", is_file=True),
    "key": _Key("--key", "key", is_file=True, is_secret=True),
    "sasl": _Key("--sasl", "sasl"),
    "password_file": _Key("--password-file", "password_file", is_file=True, is_secret=True),
    "peer_secret": _Key("--peer-secret", "peer_secret", is_file=True, is_secret=True),
    "token_file": _Key("--token-file", "token_file", is_file=True, is_secret=True),
    "kafka_sasl": _Key("--sasl", "kafka_sasl"),
    "kafka_password_file": _Key("--password-file", "kafka_password_file", is_file=True, is_secret=True),
    "kafka_mechanism": _Key("--mechanism", "kafka_mechanism"),
}

#: {key: the option that it stands for}
PROFILE_OPTIONS: Final[Mapping[str, str]] = {key: each.option for key, each in _KEYS.items()}


def read_profile(name: str, file: str) -> dict[str, str]:
    """Return {key: value} of a profile, paths absolute.

    Args:
        name: of the table. file: FILE_VARIABLE, or "" for DEFAULT_FILE.

    Raises:
        UsageError: there is no such profile, or something in it is wrong.
    """
    path = Path(file or DEFAULT_FILE).expanduser()
    where = f"profile {shown(name)} of {path}"
    tables, mode = _read(path)
    table = tables.get(name)
    if not isinstance(table, dict):
        names = [each for each, value in tables.items() if isinstance(value, dict)]
        remedy = f"name one of {', '.join(names)}" if names else f"write a table [{name}] into it"
        raise UsageError(f"{where}: there is none", remedy)
    for key in table:
        if key not in _KEYS:
            remedy = f"remove {key}, or use one of {', '.join(_KEYS)}{nearest(key, list(_KEYS))}"
            raise UsageError(f"{where}: there is no key {shown(key)}", remedy)
    secrets = [key for key in table if _KEYS[key].is_secret]
    if secrets and mode & 0o077:
        problem = f"{where} names a secret by {secrets[0]}, and is open to other users of the machine"
        raise UsageError(problem, f"chmod 600 {path}")
    return {key: _text(where, key, value, path.parent) for key, value in table.items()}


def _read(path: Path) -> tuple[Mapping[str, object], int]:
    remedy = f"write it, or name another one by {FILE_VARIABLE}"
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path} is no regular file", remedy)
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
    except OSError as error:
        known = remedy if isinstance(error, FileNotFoundError) else remedy_for_os(error)
        raise UsageError(f"profiles {path} cannot be read: {error.strerror}", known) from error
    try:
        return tomllib.loads(content.decode("utf-8")), mode
    except ValueError as error:
        raise UsageError(f"profiles {path}: {error}", "write TOML, a table a profile") from error


def _text(where: str, key: str, value: object, folder: Path) -> str:
    if isinstance(value, list) and value and _KEYS[key].is_address:
        if all(isinstance(each, str) and each for each in value):
            return ",".join(value)
    elif isinstance(value, str) and value:
        return str(folder / Path(value).expanduser()) if _KEYS[key].is_file else value
    wanted = "a file" if _KEYS[key].is_file else "host:port,…" if _KEYS[key].is_address else "a text"
    raise UsageError(f"{where}: {key} = {shown(value)}", f"give {wanted}")


def use_profile(parser: argparse.ArgumentParser, profile: Mapping[str, str]) -> None:
    """Make a profile the default of every option that it stands for, of all commands.

    Args:
        parser: of the whole command line, changed in place. profile: as read_profile returned it.
    """
    for action in _options(parser):
        for key, value in profile.items():
            option, dest, is_address, *_ = _KEYS[key]
            if action.dest != dest or option not in action.option_strings or action.nargs is not None:
                continue
            # SUPPRESS: the option of the same name before the command counts.
            if action.default == argparse.SUPPRESS or (is_address and action.default is None):
                continue
            if action.choices is not None and value not in action.choices:
                known = ", ".join(map(str, action.choices))
                raise UsageError(f"profile: {key} = {shown(value)}", f"give one of {known}")
            action.default, action.required = value, False


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for each in action.choices.values():
                yield from _options(each)
        elif action.option_strings:
            yield action
