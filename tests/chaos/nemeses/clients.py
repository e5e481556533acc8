"""Clients die or freeze; the next process of each takes over what it has."""

from __future__ import annotations

import contextlib
import signal
from typing import ClassVar, Final

from tests.chaos.clients import SILENT_S
from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import eventually

#: How long a client may take to begin again, or a zombie to end.
BITE_DEADLINE_S: Final = 30.0


class SignalClient(Nemesis):
    """A signal for the present process of a client."""

    signal: ClassVar[signal.Signals]
    needs_brokers: ClassVar[bool] = True
    needs_clients: ClassVar[bool] = True

    def start(self) -> str:
        """Choose a client, and send it the signal."""
        self.client = self.rng.choice(self.cluster.clients)
        self.number, self.victim = self.client.number, self.client.present
        self.victim.process.send_signal(self.signal)
        return f"{self.client.name}-{self.number}"

    def stop(self) -> None:
        """Its client goes on by itself."""

    def bite(self) -> str:
        """Wait until the next process took over and this one is no more."""
        with contextlib.suppress(AssertionError):
            return eventually(self._look, BITE_DEADLINE_S, "it is no more")
        return ""

    def _look(self) -> str:
        over = self.victim.ended and self.client.number > self.number
        return f"{self.client.name}-{self.client.number} took over" if over else ""


class KillClient(SignalClient):
    """SIGKILL."""

    name: ClassVar[str] = "kill-client"
    description: ClassVar[str] = "SIGKILL for a client, whatever it has under way; another one takes over"
    signal: ClassVar[signal.Signals] = signal.SIGKILL


class PauseClient(SignalClient):
    """SIGSTOP."""

    name: ClassVar[str] = "pause-client"
    description: ClassVar[str] = "SIGSTOP for a client, which comes back when another one took over"
    signal: ClassVar[signal.Signals] = signal.SIGSTOP
    holds_s: ClassVar[tuple[float, float]] = SILENT_S


CLIENTS: Final[tuple[type[Nemesis], ...]] = (KillClient, PauseClient)
