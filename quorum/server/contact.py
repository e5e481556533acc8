"""How long no leader was heard, and whether that may be due to a pause of this process.

Silence is judged from one tick to the next before new contact counts, so a process that was stopped for long
finds itself out even if old messages wait in its sockets. Pure: the clock and the age of the contact come in
as arguments. Soft state only. Source: docs/concepts/guarantees.md, "Availability".
"""

from __future__ import annotations

from typing import Final

from quorum.server.options import ServerOptions

#: By so many times a node may be silent longer that stood still itself: a client that talks once in a third
#: of its timeout cannot have expired before.
_SHARES_AFTER_PAUSE: Final = 2


class Contact:
    """When a leader was last known to be heard."""

    def __init__(self, options: ServerOptions, now_ms: float) -> None:
        """Begin without contact."""
        self._options = options
        self._heard_ms = float("-inf")
        self._ticked_ms = now_ms
        #: until when silence may be due to a pause of this process
        self._listening_until_ms = float("-inf")

    def silence_ms(self, now_ms: float) -> float:
        """Milliseconds for which no contact to a leader was seen."""
        return now_ms - self._heard_ms

    def note(self, now_ms: float, age_ms: float) -> None:
        """Count contact that is so old."""
        self._heard_ms = max(self._heard_ms, now_ms - age_ms)

    def serves(self, now_ms: float, age_ms: float) -> bool:
        """Tell whether there is contact; after a pause the next tick judges the silence before new counts."""
        if now_ms - self._ticked_ms <= self._options.pause_ms_min:
            self.note(now_ms, age_ms)
        return now_ms - self._heard_ms < self._options.contact_loss_ms_max

    def tick(self, now_ms: float) -> float:
        """Return by which factor silence may be longer in this tick than the limits of connections say."""
        if now_ms - self._ticked_ms > self._options.pause_ms_min:
            self._listening_until_ms = now_ms + self._options.contact_loss_ms_max
        self._ticked_ms = now_ms
        return _SHARES_AFTER_PAUSE if now_ms < self._listening_until_ms else 1
