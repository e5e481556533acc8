"""Where a backup lies: a folder, or a URL that fsspec reaches.

Decides that a folder is for its owner alone, that nothing is written beside what is there, and that a backup
at a URL is read back from there. Everything else works on a folder; for a URL that is a temporary one.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from quorum.backup.manifest import JOURNAL_NAME, MANIFEST_NAME, SNAPSHOT_NAME, BackupDamagedError
from quorum.backup.reading import read_backup
from quorum.errors import Fault, QuorateError, UsageError, printable

_INSTALL: Final = "pip install 'quorate[backup]'"


class PlaceError(QuorateError):
    """A URL that could not be read or written."""

    fault = Fault.OPERATOR


@contextlib.contextmanager
def new_backup(target: str) -> Iterator[Path]:
    """Yield an empty folder; what is in it at the end becomes the backup.

    A folder that this made goes with a failure.

    Args:
        target: a folder or a URL.
    """
    if "://" in target:
        with _new_remote(target) as folder:
            yield folder
        return
    folder = Path(target)
    is_new = not folder.exists()
    if is_new:
        folder.mkdir(0o700, parents=True)
    elif not folder.is_dir() or any(folder.iterdir()):
        problem = f"TARGET {target} is no empty folder"
        raise UsageError(problem, "name a folder that is missing or empty, one for each backup")
    folder.chmod(0o700)
    try:
        yield folder
    except BaseException:
        if is_new:
            folder.rmdir()
        raise


@contextlib.contextmanager
def taken_backup(source: str) -> Iterator[Path]:
    """Yield the folder with a backup's files; they are not checked.

    Args:
        source: a folder or a URL.
    """
    if "://" not in source:
        yield Path(source)
        return
    system, path = _reach(source)
    with tempfile.TemporaryDirectory(prefix="quorate-backup-") as temporary:
        _fetch(source, system, path, Path(temporary))
        yield Path(temporary)


@contextlib.contextmanager
def _new_remote(url: str) -> Iterator[Path]:
    system, path = _reach(url)
    if _names(url, system, path):
        problem = f"TARGET {printable(url)} is not empty"
        raise UsageError(problem, "name one that is missing or empty, one for each backup")
    with tempfile.TemporaryDirectory(prefix="quorate-backup-") as temporary:
        folder = Path(temporary)
        yield folder
        # The manifest last: without it there is no backup.
        names = sorted((each.name for each in folder.iterdir()), key=lambda name: name == MANIFEST_NAME)
        try:
            with _told(url, "writing it"):
                system.makedirs(path, exist_ok=True)
                for name in names:
                    system.put_file(str(folder / name), f"{path}/{name}")
            with taken_backup(url) as again:
                read_backup(again, printable(url))
        except BaseException as error:
            _take_back(url, system, path, names, error)
            raise


def _take_back(url: str, system: Any, path: str, names: Sequence[str], error: BaseException) -> None:
    """Remove what was written to a URL before an error."""
    try:
        with _told(url, "removing what was written of it"):
            for name in _names(url, system, path) & set(names):
                system.rm_file(f"{path}/{name}")
    except QuorateError as again:
        told = error.message if isinstance(error, QuorateError) else printable(str(error))
        problem = f"{told}; files stay there: {again.message}"
        raise PlaceError(problem, "look at the address, the rights and the network; empty it") from error


def _fetch(url: str, system: Any, path: str, folder: Path) -> None:
    names = _names(url, system, path)
    foreign = sorted(names - {MANIFEST_NAME, SNAPSHOT_NAME, JOURNAL_NAME})
    if foreign:
        raise BackupDamagedError(
            f"{printable(url).rstrip('/')}/{printable(foreign[0])}", "it is no file of a backup; move it away"
        )
    with _told(url, "reading it"):
        for name in sorted(names):
            system.get_file(f"{path}/{name}", str(folder / name))


def _names(url: str, system: Any, path: str) -> set[str]:
    with _told(url, "listing it"):
        try:
            # Not what an earlier look saw.
            system.invalidate_cache()
            found = system.ls(path, detail=False)
        except FileNotFoundError:
            return set()
    return {str(each).rstrip("/").rpartition("/")[2] for each in found}


def _reach(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    try:
        url_to_fs = importlib.import_module("fsspec.core").url_to_fs
    except ImportError:
        problem = f"{printable(url)} is a URL, and fsspec is not installed"
        raise UsageError(problem, f"install it: {_INSTALL}, and name a folder otherwise") from None
    try:
        system, path = url_to_fs(url.rstrip("/"))
    except (ImportError, ValueError) as error:
        remedy = "install the driver of that scheme (s3fs for s3://, gcsfs for gs://), or name a folder"
        raise UsageError(f"{printable(url)} cannot be reached: {error}", remedy) from error
    return system, str(path)


@contextlib.contextmanager
def _told(url: str, doing: str) -> Iterator[None]:
    """Map what a driver raises; there is no common class of it but OSError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        if isinstance(error, QuorateError):
            raise
        problem = f"{printable(url)}: {doing} failed: {printable(str(error) or type(error).__name__)}"
        raise PlaceError(problem, "look at the address, the rights and the network") from error
