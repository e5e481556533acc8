"""Whose log directory this is: meta.properties with broker id, cluster id and incarnation, and a copy of it.

One of the two may be damaged: a checksum tells, and the other one takes its place.

An incarnation is drawn once, when an empty directory is formatted. The controller judges memberships of
in-sync replicas by it: a broker whose disk was emptied or swapped has none.
Source: ARCHITECTURE.md, "Life of a broker failure"; KIP-78; Kafka's meta.properties.
"""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.log.errors import DamagedLogDirectoryError, ForeignLogDirectoryError
from broker.log.files import disk_errors, read_file, replace_file, sync_folder

log = logging.getLogger("quorate.broker.log")

META_NAME: Final = "meta.properties"
COPY_NAME: Final = "meta.properties.copy"
_VERSION: Final = "0"
_INCARNATION: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEYS: Final = ("version", "broker.id", "cluster.id", "incarnation")
#: what a directory may hold that was never formatted: the lock, and an attempt to format it
_UNFORMATTED: Final = {"lock", META_NAME + ".tmp", COPY_NAME + ".tmp", "lost+found"}


def claim(path: str, broker_id: int, cluster_id: str) -> str:
    """Check that a locked directory is this broker's, or format one that holds no log.

    Returns:
        Its incarnation: 32 hex digits.
    """
    found = _read(path)
    if found is None:
        return _format(path, broker_id, cluster_id)
    if (found["cluster.id"], found["broker.id"]) != (cluster_id, str(broker_id)) and not _has_folders(path):
        # It holds no log: a start under a wrong id, or with a wrong quorum, has left nothing to protect.
        return renew(path, broker_id, cluster_id)
    if found["cluster.id"] != cluster_id:
        raise ForeignLogDirectoryError(
            f"log directory {path} belongs to the cluster with id {found['cluster.id']}, "
            f"and the quorum's is {cluster_id}",
            "name the quorum of that cluster, or give this broker a data_dir of its own",
        )
    if found["broker.id"] != str(broker_id):
        raise ForeignLogDirectoryError(
            f"log directory {path} belongs to broker {found['broker.id']}, and this is broker {broker_id}",
            f"start it as broker {found['broker.id']}, or give this broker a data_dir of its own",
        )
    return found["incarnation"]


def _format(path: str, broker_id: int, cluster_id: str) -> str:
    with disk_errors(path):
        names = sorted(each.name for each in Path(path).iterdir())
    if foreign := [name for name in names if name not in _UNFORMATTED]:
        raise ForeignLogDirectoryError(
            f"log directory {path} has no {META_NAME} but holds {foreign[0]}",
            f"name an empty directory, or put the broker's {META_NAME} back",
        )
    return renew(path, broker_id, cluster_id)


def _has_folders(path: str) -> bool:
    with disk_errors(path):
        return any(each.is_dir() for each in Path(path).iterdir() if each.name not in _UNFORMATTED)


def renew(path: str, broker_id: int, cluster_id: str) -> str:
    """Draw an incarnation for a directory that is this broker's from now on, and return it."""
    incarnation = uuid.uuid4().hex
    values = (_VERSION, str(broker_id), cluster_id, incarnation)
    lines = "".join(f"{key}={value}\n" for key, value in zip(_KEYS, values, strict=True))
    content = f"{lines}crc={crc32c(lines.encode())}\n".encode()
    for name in (COPY_NAME, META_NAME):
        replace_file(f"{path}/{name}", content)
    sync_folder(path)
    return incarnation


def _read(path: str) -> dict[str, str] | None:
    """Read the file or its copy, and write the one that is not as the other; None if there is neither."""
    contents = {name: read_file(f"{path}/{name}") for name in (META_NAME, COPY_NAME)}
    damage: DamagedLogDirectoryError | None = None
    found_contents = [content for content in contents.values() if content is not None]
    # One with a checksum first: without it nothing tells a flipped bit.
    for content in sorted(found_contents, key=lambda each: b"\ncrc=" not in each):
        try:
            found = _parse(path, content)
        except DamagedLogDirectoryError as error:
            damage = damage or error
            continue
        for name, other in contents.items():
            if other != content:
                log.warning("%s/%s is written again from its copy", path, name)
                replace_file(f"{path}/{name}", content)
                sync_folder(path)
        return found
    if damage is None:
        return None
    versions = {_version(content) for content in found_contents}
    if not versions & {"", _VERSION}:
        version = max(versions)
        raise ForeignLogDirectoryError(
            f"{path}/{META_NAME} has version {version}, and this build reads {_VERSION}",
            "start the build that wrote it, or a newer one; the directory stays as it is",
        )
    raise damage


def _version(content: bytes) -> str:
    """Return the version that a file names, "" for none: it rises with any file of the directory."""
    found = re.search(rb"^version=([0-9]{1,9})$", content, re.MULTILINE)
    return "" if found is None else found[1].decode()


def _parse(path: str, content: bytes) -> dict[str, str]:
    lines = content.decode("utf-8", "replace").splitlines()
    rows = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    wrong = [key for key in _KEYS if not rows.get(key)]
    problem = f"no {wrong[0]}" if wrong else ""
    if not wrong and rows["version"] != _VERSION:
        problem = f"version {rows['version']}"
    if not problem and not _INCARNATION.fullmatch(rows["incarnation"]):
        problem = "its incarnation has not 32 hex digits"
    covered = b"".join(content.splitlines(keepends=True)[: len(_KEYS)])
    # A directory of before this line was written has none.
    if not problem and rows.get("crc", str(crc32c(covered))) != str(crc32c(covered)):
        problem = "its checksum is wrong"
    if problem:
        raise DamagedLogDirectoryError(
            f"{path}/{META_NAME} is damaged, and so is its copy: {problem}",
            "put it back from a copy; or remove the directory, and this broker copies everything anew",
        )
    return rows
