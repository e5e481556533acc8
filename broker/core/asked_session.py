"""The reader's side of a fetch session: what the next request names, and what an answer means for it.

A request names what is asked for anew or from elsewhere, and what is to be forgotten. Whatever goes wrong
with an answer, the next request begins a session and names all. Pure; soft state.
Source: KIP-227; broker/core/fetch_sessions.py is the leader's side.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from broker.core.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from controller.wire.codes import ErrorCode

_OVER: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)

N = TypeVar("N", bound=Hashable)
A = TypeVar("A")


class Changes(NamedTuple, Generic[N, A]):
    """What a request says."""

    session_id: int
    epoch: int
    #: {partition: from where}; of a first request all
    named: dict[N, A]
    forgotten: list[N]


class AskedSession(Generic[N, A]):
    """What one leader's session asks for; N names a partition, A says from where."""

    __slots__ = ("_asked", "_forgotten", "_named", "epoch", "session_id")

    def __init__(self) -> None:
        """Ask for nothing yet."""
        self.session_id = NO_SESSION
        self.begin()

    def begin(self) -> None:
        """Ask for nothing; the next request begins a session, and has to name all."""
        self.epoch = INITIAL_EPOCH
        self._asked: dict[N, A] = {}
        self._named: dict[N, A] = {}
        self._forgotten: dict[N, None] = {}

    def __len__(self) -> int:
        """Return how many partitions it asks for."""
        return len(self._asked)

    def names(self) -> list[N]:
        """Return what it asks for."""
        return list(self._asked)

    def get(self, name: N) -> A | None:
        """Return from where it asks for a partition; None: it does not."""
        return self._asked.get(name)

    def want(self, name: N, asked: A) -> None:
        """Ask for a partition from here on."""
        if self._asked.get(name) != asked:
            self._asked[name] = self._named[name] = asked
            self._forgotten.pop(name, None)

    def leave(self, name: N) -> None:
        """Ask for a partition no longer."""
        if self._asked.pop(name, None) is not None:
            self._named.pop(name, None)
            self._forgotten[name] = None

    def request(self) -> Changes[N, A]:
        """Return what the next request says."""
        changes = Changes(self.session_id, self.epoch, self._named, list(self._forgotten))
        self._named, self._forgotten = {}, {}
        return changes

    def is_refused(self, error_code: ErrorCode) -> bool:
        """Whether the leader has no such session any more; then the next request begins one."""
        if error_code not in _OVER or self.epoch == INITIAL_EPOCH:
            return False
        self.begin()
        return True

    def advance(self, session_id: int) -> None:
        """Go on in the session that an answer names, once what it holds is taken."""
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.begin()
        else:
            self.epoch = next_epoch(self.epoch)
