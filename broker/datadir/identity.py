"""Whose log directory this is: meta.properties with broker id, cluster id and incarnation.

An incarnation is drawn once, when an empty directory is formatted. The controller judges memberships of
in-sync replicas by it: a broker whose disk was emptied or swapped has none.
Source: control-plane design, "Registration"; KIP-78; Kafka's meta.properties.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from broker.log.errors import DamagedLogDirectoryError, ForeignLogDirectoryError
from broker.log.files import disk_errors, read_file, replace_file, sync_folder

META_NAME: Final = "meta.properties"
_VERSION: Final = "0"
_KEYS: Final = ("version", "broker.id", "cluster.id", "incarnation")
#: what a directory may hold that was never formatted: the lock, and an attempt to format it
_UNFORMATTED: Final = {"lock", META_NAME + ".tmp", "lost+found"}


def claim(path: str, broker_id: int, cluster_id: str) -> str:
    """Check that a locked directory is this broker's, or format one that holds no log.

    Returns:
        Its incarnation: 32 hex digits.

    Raises:
        ForeignLogDirectoryError: of another broker or cluster, or not a log directory.
        DamagedLogDirectoryError: meta.properties cannot be read as such.
        LogStorageError: the disk refuses.
    """
    content = read_file(f"{path}/{META_NAME}")
    if content is None:
        return _format(path, broker_id, cluster_id)
    found = _parse(path, content)
    if (found["cluster.id"], found["broker.id"]) != (cluster_id, str(broker_id)) and not _has_folders(path):
        # It holds no log: a start under a wrong id, or with a wrong quorum, has left nothing to protect.
        return _write(path, broker_id, cluster_id)
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
    return _write(path, broker_id, cluster_id)


def _has_folders(path: str) -> bool:
    with disk_errors(path):
        return any(each.is_dir() for each in Path(path).iterdir() if each.name not in _UNFORMATTED)


def _write(path: str, broker_id: int, cluster_id: str) -> str:
    incarnation = uuid.uuid4().hex
    values = (_VERSION, str(broker_id), cluster_id, incarnation)
    lines = [f"{key}={value}\n" for key, value in zip(_KEYS, values, strict=True)]
    replace_file(f"{path}/{META_NAME}", "".join(lines).encode())
    sync_folder(path)
    return incarnation


def _parse(path: str, content: bytes) -> dict[str, str]:
    lines = content.decode("utf-8", "replace").splitlines()
    rows = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    wrong = [key for key in _KEYS if not rows.get(key)]
    if wrong or rows["version"] != _VERSION:
        raise DamagedLogDirectoryError(
            f"{path}/{META_NAME} is damaged: "
            + (f"no {wrong[0]}" if wrong else f"version {rows['version']}"),
            "put it back from a copy; or remove the directory, and this broker copies everything anew",
        )
    return rows
