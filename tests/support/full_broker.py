"""A broker's disk that has no room while a file `full` lies in the working folder (see full_node).

No log and no checkpoint takes a byte then. `install` belongs to the broker's process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from tests.support.full_node import is_full


def install() -> None:
    """Let this process find no room when it is asked for."""
    pwritev = os.pwritev

    def bounded(descriptor: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        if is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwritev(descriptor, buffers, offset, flags)

    os.pwritev = bounded  # type: ignore[assignment]  # typeshed asks for less than a sequence
