"""Carries the effects of a term's channels out, and their inputs in, while the term has a loop of its own.

Source: issue "Make the control plane steppable".
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping

from controller.core.channels import Channels
from controller.core.effects import CloseChannel, Effect, Level, OpenChannel, Send, Trace
from controller.core.inputs import Answered, Ended, Input, NoAnswer
from controller.core.model import ClusterModel, KnownState
from controller.runtime.senders import Senders, TermShare
from quorum.metadata.numbers import PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord

log = logging.getLogger("quorate.controller.channel")


class Carrying:
    """The channels of one term and their senders."""

    def __init__(
        self,
        share: Callable[..., TermShare],
        model: ClusterModel,
        on_progress: Callable[[], None],
        on_over: Callable[[str], None],
        on_overrun: Callable[[int], None],
    ) -> None:
        """Have no channels yet."""
        made = share(put=self._put)
        options = made.options
        self.senders = Senders(made)
        self.by_queue = options.channel == "queue"
        self.channels = Channels(
            model,
            made.counters,
            self._carry_out,
            by_queue=self.by_queue,
            queue_entries_max=options.queue_entries_max,
        )
        self._on_progress = on_progress
        self._on_over = on_over
        self._on_overrun = on_overrun
        self._timer: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Send what is due, and again when the next pause is over."""
        now_ms = _now_ms()
        for each in self.channels.overrun():
            self._on_overrun(each)
        self.channels.flush(now_ms)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wake_ms := self.channels.wake_ms) is not None:
            self._timer = asyncio.get_running_loop().call_later((wake_ms - now_ms) / 1000, self.flush)

    async def close_all(self) -> None:
        """Send nothing more."""
        self.channels.close_all()
        await self.senders.close_all()
        self.flush()

    def bytes_of(self, key: PartitionKey) -> int:
        """Say how many bytes the entries of a partition take at most."""
        return self.channels.entry_bytes(key)

    def nodes(
        self, states: Mapping[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]], *, is_new: bool
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the entries of the brokers that get roles by these states."""
        known = {key: KnownState(state, version, None) for key, (state, version) in states.items()}
        yield from map(self.senders.node, self.channels.entries(known, is_new=is_new))

    def lost_queue(self) -> None:
        """End the term: somebody has removed a queue, and nobody knows what stood in it."""
        self._on_over("a queue of a broker was removed")

    def _put(self, taken: Input) -> None:
        match taken:
            case Answered():
                resign = self.channels.answered(taken, _now_ms())
                if resign is not None:
                    self._on_over(resign.reason)
            case NoAnswer():
                self.channels.no_answer(taken, _now_ms())
            case Ended(reason):
                self._on_over(reason)
            case _:
                raise AssertionError(taken)
        self.flush()
        self._on_progress()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case OpenChannel():
                self.senders.open(effect)
            case CloseChannel():
                self.senders.close(effect)
            case Send():
                self.senders.send(effect)
            case Trace(level, text):
                log.log(logging.INFO if level is Level.INFO else logging.WARNING, text)
            case _:
                raise AssertionError(effect)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
