"""Points in time of a backup: by zxid, or by time. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from quorum.backup.manifest import BackupManifest
from quorum.backup.replaying import Limit
from quorum.core.codes import INT64_MAX
from quorum.errors import UsageError, shown

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def written_time(stamp_ms: int) -> str:
    """Return a stamp in milliseconds as ISO 8601, UTC."""
    return (
        (_EPOCH + timedelta(milliseconds=stamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def read_time(text: str) -> int:
    """Read a time as a stamp in milliseconds; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        problem = f"--as-of-time {shown(text)} is no time: {error}"
        raise UsageError(problem, "give it as 2026-11-27T21:15:00Z") from error
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def point_of(manifest: BackupManifest, zxid: int | None, stamp_ms: int | None) -> Limit:
    """Return where a restore ends; raises a UsageError for a point that the backup does not reach.

    Args:
        manifest: of the backup.
        zxid: the transaction; None: not by one.
        stamp_ms: the time; None: not by one. What came after the backup was taken is not known.
    """
    first, last = manifest.first_zxid, manifest.last_zxid
    if zxid is not None and not first <= zxid <= last:
        problem = f"--as-of-zxid {zxid} is not in what the backup holds, zxid {first} … {last}"
        raise UsageError(problem, "give a zxid of these, or restore another backup")
    last_ms = max(manifest.last_ms, manifest.taken_ms)
    if stamp_ms is not None and not manifest.first_ms <= stamp_ms <= last_ms:
        times = f"{written_time(manifest.first_ms)} … {written_time(last_ms)}"
        held = f"{times} (zxid {first} … {last})"
        problem = f"--as-of-time {written_time(stamp_ms)} is not in what the backup holds, {held}"
        raise UsageError(problem, "give a time between these, or restore another backup")
    return Limit(INT64_MAX if zxid is None else zxid, INT64_MAX if stamp_ms is None else stamp_ms)
