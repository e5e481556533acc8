"""Where a backup lies: a folder, or a URL that fsspec reaches.

Decides that a folder is for its owner alone, that nothing is written beside what is there, and that a backup
at a URL is read back from there. Everything else works on a folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from quorum.errors import UsageError


@contextlib.contextmanager
def new_backup(target: str) -> Iterator[Path]:
    """Yield an empty folder; what is in it at the end is the backup.

    A folder that this made goes with a failure.
    """
    folder = Path(target)
    is_new = not folder.exists()
    if is_new:
        folder.mkdir(0o700)
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
    """Yield the folder with a backup's files."""
    yield Path(source)
