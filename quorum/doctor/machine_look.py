"""Looks at configuration files of this machine, and at the files and folders that they name.

Names of settings say what a file is for, so that a configuration that a start would refuse is looked at, too.
What a start would say of it, the loader of its kind says. Reads certificates, never secrets or keys.

Source: deploy/node.toml; deploy/broker.toml.
"""

from __future__ import annotations

import os
import stat
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from quorum.errors import ConfigError, UsageError, remedy_for_os
from quorum.health.seen import ConfigSeen, FileSeen, MachineSeen, SettingProblem
from quorum.platform.tls import not_after_s


class Loaded(Protocol):
    """A configuration."""

    def masked(self) -> str:
        """Return it as JSON, secrets masked."""


#: reads and checks a configuration as a start does, and raises a ConfigError
Load = Callable[[Path], Loaded]
_CERTIFICATE_BYTES_MAX: Final = 4 * 1024 * 1024
#: {end of a key: what the file is}
_KINDS: Final = {
    "secret_file": "secret",
    "token_file": "secret",
    "users_file": "users",
    "key_file": "key",
    "certificate_file": "certificate",
    "authorities_file": "certificate",
    "data_dir": "data_dir",
}


def named_configs(configs: Sequence[Path], data_dir: Path | None) -> list[Path]:
    """Return the configuration files that were named, those of a `quorate up` among them.

    Raises:
        UsageError: one is not there.
    """
    found = list(configs)
    if data_dir is not None:
        kinds = ("node", "broker")
        ours = [path for kind in kinds for path in sorted(data_dir.glob(f"{kind}-[1-9]/{kind}.toml"))]
        if not ours:
            remedy = "name the folder of a `quorate up`, or files with --config"
            raise UsageError(f"--data-dir {data_dir} holds no node.toml or broker.toml", remedy)
        found += ours
    for path in found:
        if not path.is_file():
            raise UsageError(f"--config {path} is no file", "name a node.toml or broker.toml")
    return found


def look_at_machine(configs: Sequence[Path], loaders: Mapping[str, Load]) -> MachineSeen:
    """Look at configurations and what they name.

    Args:
        configs: their files.
        loaders: {section that a kind of configuration has: what loads it}.
    """
    seen: list[ConfigSeen] = []
    files: list[FileSeen] = []
    for path in configs:
        sections, problems = _read(path)
        if not problems:
            problems = _refused(path, sections, loaders)
        seen.append(ConfigSeen(str(path), problems))
        files += _named_files(path, sections, "")
    return MachineSeen(tuple(seen), tuple(files), time.time())


def admin_urls(configs: Sequence[Path]) -> list[str]:
    """Return the admin ports of the nodes that these configurations are of."""
    urls: list[str] = []
    for path in configs:
        sections, _ = _read(path)
        if "node" in sections:
            address = _section(sections, "listen").get("admin", "127.0.0.1:8181")
            scheme = "https" if _section(sections, "security").get("admin_ssl") is True else "http"
            urls.append(f"{scheme}://{address}")
    return urls


def read_sections(path: Path) -> dict[str, Any]:
    """Return the sections of a configuration, unchecked; none of one that cannot be read."""
    return _read(path)[0]


def _section(sections: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = sections.get(name)
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> tuple[dict[str, Any], tuple[SettingProblem, ...]]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), ()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        return {}, (SettingProblem("--config", str(path), problem, remedy_for_os(error)),)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return {}, (SettingProblem("--config", str(path), f"is not TOML: {error}", "mend that line"),)


def _refused(
    path: Path, sections: Mapping[str, Any], loaders: Mapping[str, Load]
) -> tuple[SettingProblem, ...]:
    """Return what a start would say; nothing of a file of no kind that is known."""
    load = next((load for section, load in loaders.items() if section in sections), None)
    if load is None:
        known = " or ".join(f"[{section}]" for section in loaders)
        problem = f"has no section {known}"
        return (SettingProblem("--config", str(path), problem, "name a node.toml or broker.toml"),)
    try:
        load(path)
    except ConfigError as error:
        return tuple(
            SettingProblem(each.field, str(each.value), each.problem, each.remedy) for each in error.problems
        )
    return ()


def _named_files(config: Path, sections: Mapping[str, Any], prefix: str) -> Iterator[FileSeen]:
    for key, value in sections.items():
        if isinstance(value, dict):
            yield from _named_files(config, value, f"{prefix}{key}.")
        elif isinstance(value, str) and value:
            kind = next((kind for end, kind in _KINDS.items() if key.endswith(end)), None)
            if kind is not None:
                path = (config.absolute().parent / value).resolve()
                yield _look(FileSeen(str(path), str(config), f"{prefix}{key}", kind, None), path)


def _look(unseen: FileSeen, path: Path) -> FileSeen:
    """Return what can be had of a file without reading a secret."""
    try:
        seen = unseen._replace(mode=stat.S_IMODE(path.stat().st_mode))
        if seen.kind == "data_dir":
            room = os.statvfs(path)
            free_bytes, size_bytes = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
            return seen._replace(free_bytes=free_bytes, size_bytes=size_bytes)
        if seen.kind == "certificate" and path.is_file():
            with path.open("rb") as file:
                return seen._replace(expires_s=_expires_s(file.read(_CERTIFICATE_BYTES_MAX)))
    except OSError:
        # A start that needs the file says so, and so does what loads the configuration.
        return unseen
    return seen


def _expires_s(content: bytes) -> float | None:
    try:
        return not_after_s(content)
    except (ValueError, IndexError):
        return None
