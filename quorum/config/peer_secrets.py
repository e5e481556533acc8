"""The peer secrets of one process: read at its start, again on SIGHUP and every minute.

Decides what counts when the file has changed: what is whole, and shares a line with what counts now, counts
from the next connection on; anything else keeps what was, with one warning a change. Connections that are
open stay. A secret is replaced in steps, and no step leaves two processes without a common line: the new
secret below the old one everywhere; swapped everywhere; `quorate secret rotate` for brokers; the old one cut.
Soft state only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, overload

from quorum.config.node import read_peer_secrets
from quorum.errors import ConfigError

log = logging.getLogger("quorate.secrets")

FIELD: Final = "security.peer_secret_file"


class PeerSecrets(Sequence[str]):
    """What counts now: the first is proved, each is accepted. Whoever keeps it sees every replacement."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Args:
            path: security.peer_secret_file.

        Raises:
            ConfigError: it is wrong.
        """
        self._path = path
        self._secrets = tuple(read_peer_secrets(path))
        #: what was warned of
        self._problem = ""

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        """Return one, or some."""
        return self._secrets[index]

    def __len__(self) -> int:
        """Return how many count."""
        return len(self._secrets)

    def reread(self) -> tuple[str, ...] | None:
        """Return what the file has; None where that is what counts, or is wrong, which is warned of."""
        try:
            found = tuple(read_peer_secrets(self._path))
        except ConfigError as error:
            self.warn(error.message, error.remedy)
            return None
        if found == self._secrets:
            self._problem = ""
            return None
        if not set(found) & set(self._secrets):
            problem = f"{FIELD} = {self._path} has no line that counts now"
            self.warn(problem, "put the new secret below the old one first, everywhere")
            return None
        return found

    def warn(self, problem: str, remedy: str) -> None:
        """Say once why what the file has does not count."""
        if self._problem != problem:
            log.warning("what was read before stays in use: %s; %s", problem, remedy)
        self._problem = problem

    def replace(self, secrets: tuple[str, ...]) -> None:
        """Let what `reread` returned count."""
        proved = "the same" if secrets[0] == self._secrets[0] else "another"
        self._secrets = secrets
        self._problem = ""
        count = len(secrets)
        log.info("%s is read again: new connections prove %s secret, and accept %d", FIELD, proved, count)

    def reload(self) -> None:
        """Read the file again, and let what it has count if that can be."""
        found = self.reread()
        if found is not None:
            self.replace(found)
