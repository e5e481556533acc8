"""What a file says, read at the start and again when asked; a bad one keeps what was.

Decides when that is told: once for each problem. When a file is read again is its owner's to decide: on
SIGHUP, every minute, or for each connection. Soft state only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from quorum.errors import ConfigError

log = logging.getLogger("quorate.security")

T = TypeVar("T")


class LastGood(Generic[T]):
    """What a file said when it was last right."""

    def __init__(self, read: Callable[[], T]) -> None:
        """Read the file.

        Args:
            read: returns what the file says, or raises ConfigError.

        Raises:
            ConfigError: it is wrong.
        """
        self._read = read
        #: what counts now
        self.value = read()
        #: what was warned of; "": nothing
        self._problem = ""

    def reload(self) -> bool:
        """Read the file again; returns whether it says something else now, or was wrong before."""
        try:
            value = self._read()
        except ConfigError as error:
            self.warn(error.message, error.remedy)
            return False
        is_news = bool(self._problem) or value != self.value
        self.value, self._problem = value, ""
        return is_news

    def warn(self, problem: str, remedy: str) -> None:
        """Say once why what the file has does not count."""
        if self._problem != problem:
            log.warning("what was read before stays in use: %s; %s", problem, remedy)
        self._problem = problem
