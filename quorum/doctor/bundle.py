"""A ZIP for a bug report: what doctor says, and each process's status, settings, metrics and end of its log.

Decides what goes in: nothing that a secret, a token, a znode or a record is part of. Settings come masked. In
case a log repeats a secret, every text is searched for those that the configurations name, which are read for
that alone. What could not be had is a line in missing.txt. No state.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from quorum.admin.client import token_headers
from quorum.doctor.asking import AdminAsker, asking
from quorum.doctor.doctor import Scope, diagnose, loaders
from quorum.doctor.machine_look import Load, look_at_machine, read_sections
from quorum.errors import ConfigError, QuorateError, UnreachableError, UsageError, remedy_for_os, told_by_os
from quorum.health.findings import as_fields
from quorum.health.seen import MachineSeen, ProcessSeen

LOG_BYTES_MAX: Final = 256 * 1024
#: a shorter word of a file of secrets is no secret: a user's name, or a number
_SECRET_CHARS_MIN: Final = 12
_SECRET_BYTES_MAX: Final = 1024 * 1024
_MASK: Final = "***"


class _Parts:
    """The files of a bundle."""

    def __init__(self) -> None:
        #: {name in the ZIP: content}
        self.texts: dict[str, str] = {}
        self.missing: list[str] = []

    def lacks(self, name: str, reason: str) -> None:
        """Say that a file could not be had, and why."""
        self.missing.append(f"{name}: {' '.join(reason.split())}")


async def collect(scope: Scope) -> dict[str, str]:
    """Look at all of it.

    Returns:
        {name in the ZIP: content}, without secrets.
    """
    survey = await diagnose(scope)
    parts = _Parts()
    parts.texts["doctor.json"] = _json(as_fields(survey.report))
    for name, reason in survey.silent.items():
        parts.lacks(name, reason)
    async with asking(survey.named) as asker:
        await asyncio.gather(*(_add_process(asker, each, parts) for each in survey.processes))
    known = loaders()
    for config in scope.configs:
        _add_files(config, known, parts)
    for each in survey.processes:
        folder = _folder(each.name)
        if f"{folder}/settings.json" not in parts.texts:
            parts.lacks(f"{folder}/settings.json", "name its configuration with --config")
        if f"{folder}/log.txt" not in parts.texts:
            parts.lacks(f"{folder}/log.txt", "--data-dir names no folder with its log")
    parts.texts["missing.txt"] = "".join(f"{line}\n" for line in sorted(set(parts.missing)))
    secrets = sorted(_secrets(look_at_machine(scope.configs, known), scope), key=len, reverse=True)
    return {name: _masked(text, secrets) for name, text in sorted(parts.texts.items())}


def _folder(name: str) -> str:
    return name.replace(" ", "-")


def _json(fields: object) -> str:
    return json.dumps(fields, indent=1) + "\n"


async def _add_process(asker: AdminAsker, process: ProcessSeen, parts: _Parts) -> None:
    folder = _folder(process.name)
    asked = [("status.json", "/v1/status"), ("metrics.txt", "/metrics")]
    if process.name.startswith("node "):
        asked.append(("settings.json", "/v1/config"))
    for name, path in asked:
        try:
            if name == "metrics.txt":
                page = await asker.get(process.url, path)
                parts.texts[f"{folder}/{name}"] = page.body.decode("utf-8", "replace")
            else:
                answer, _ = await asker.get_object(process.url, path)
                parts.texts[f"{folder}/{name}"] = _json(answer)
        except UnreachableError as error:
            parts.lacks(f"{folder}/{name}", error.message)


def _add_files(config: Path, known: Mapping[str, Load], parts: _Parts) -> None:
    """Add the settings of a configuration of this machine, and the end of the log beside it."""
    sections = read_sections(config)
    kind = next((section for section in known if section in sections), None)
    if kind is None:
        parts.lacks(str(config), "it is no node.toml or broker.toml")
        return
    folder = f"{kind}-{_id_of(sections, kind)}"
    if f"{folder}/settings.json" not in parts.texts:
        try:
            parts.texts[f"{folder}/settings.json"] = _json(json.loads(known[kind](config).masked()))
        except ConfigError as error:
            parts.lacks(f"{folder}/settings.json", error.message)
    try:
        parts.texts[f"{folder}/log.txt"] = _tail(config.absolute().parent / f"{kind}.log")
    except OSError as error:
        parts.lacks(f"{folder}/log.txt", told_by_os(error, "its log"))


def _id_of(sections: Mapping[str, Any], kind: str) -> str:
    found = sections[kind].get("id") if isinstance(sections[kind], dict) else None
    return str(found) if isinstance(found, int) else "unknown"


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        return file.read().decode("utf-8", "replace")


def _secrets(machine: MachineSeen, scope: Scope) -> set[str]:
    """Return every word that must not be told, as far as this machine has it."""
    found = {each for header in token_headers().values() for each in header.split()}
    for file in machine.files:
        if file.kind in ("secret", "users", "key"):
            found |= set(_words(Path(file.path)))
    for config in scope.configs:
        security = read_sections(config).get("security")
        digest = security.get("super_digest") if isinstance(security, dict) else None
        if isinstance(digest, str):
            found |= {digest, digest.partition(":")[2]}
    if scope.login is not None:
        found.add(scope.login.password())
    # A log in JSON has escapes.
    found |= {json.dumps(each)[1:-1] for each in found}
    return {each for each in found if len(each) >= _SECRET_CHARS_MIN}


def _words(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_SECRET_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        # Who cannot read it cannot tell it, either.
        return
    for line in text.splitlines():
        if not line.startswith("-----"):
            yield line.strip()
            yield from line.replace(":", " ").replace("=", " ").replace('"', " ").split()


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text


def check_new(path: Path) -> None:
    """Refuse a file that is there.

    Raises:
        UsageError: it is.
    """
    if path.exists():
        raise _exists(path)


def _exists(path: Path) -> UsageError:
    return UsageError(f"--output {path} exists", "name a file that does not")


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Write a ZIP that only its owner may read.

    Raises:
        UsageError: the file exists. QuorateError: it cannot be written.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise QuorateError(told_by_os(error, str(path)), remedy_for_os(error)) from error
    try:
        with open(file, "wb") as stream:  # noqa: PTH123  # it is a descriptor
            stream.write(content.getvalue())
    except OSError as error:
        path.unlink()
        raise QuorateError(told_by_os(error, str(path)), remedy_for_os(error)) from error
