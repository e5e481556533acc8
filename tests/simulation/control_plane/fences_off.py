"""The fences of the control plane, each with what takes its place when it is switched off.

A fence is one function of `controller.core.fences`, `broker.core.fences`, `broker.core.groups.group_fences`
or `broker.core.transactions.transaction_fences` that is replaced; some rules of transactions are methods.
Without it a stale actor acts, and the world must see that some promise no longer holds.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import broker.core.fences as of_broker
import broker.core.groups.group_fences as of_groups
import broker.core.transactions.transaction_fences as of_transactions
import controller.core.fences as of_controller
from broker.core.transactions import deciding
from broker.core.transactions.machine import TransactionsMachine
from broker.core.transactions.moves import Event
from broker.groups.markers import MarkerSender
from broker.log.producers import Producers
from controller.core.effects import Check
from quorum.metadata import paths


class Off(NamedTuple):
    """One function that is replaced, of a module or of a class."""

    module: ModuleType | type
    name: str
    replacement: Callable[..., Any]


def _never(*_arguments: object) -> bool:
    return False


def _always(*_arguments: object) -> bool:
    return True


_stable = Producers.last_stable_offset
_fly = TransactionsMachine._fly
_taken = deciding._taken


def _one_too_high(producers: Producers, high_watermark: int) -> int:
    return min(_stable(producers, high_watermark) + 1, high_watermark)


async def _forget(_sender: MarkerSender, sending: Any, keys: Any) -> None:
    """Send a marker that a leader did not write to no other one."""
    for key in keys:
        sending.written(key)


def _fly_with_offsets(machine: TransactionsMachine, slot: Any, flight: Any) -> None:
    """Let the offsets of an aborted transaction take effect, too."""
    if flight.change is not None and flight.change.event in (Event.ABORT, Event.FENCE):
        flight.groups = sorted(slot.stored.offsets)
    _fly(machine, slot, flight)


def _taken_again(producer: Any, *rest: Any) -> Any:
    return _taken(producer._replace(epoch=max(producer.epoch - 1, 0)), *rest)


#: {fence: what switches it off}
FENCES: dict[str, tuple[Off, ...]] = {
    "controller epoch of writes": (
        Off(of_controller, "controller_epoch", lambda _version: Check(paths.CONTROLLER_EPOCH, -1)),
    ),
    "controller epoch of requests": (Off(of_broker, "is_stale_controller", _never),),
    "newest connection": (Off(of_broker, "is_former_connection", _never),),
    "generation": (Off(of_broker, "is_stale_generation", _never),),
    # Either of the two keeps an older decision of one controller from coming behind a newer one.
    "leader epoch": (
        Off(of_broker, "is_stale_decision", _never),
        Off(of_broker, "is_former_connection", _never),
    ),
    "partition version": (Off(of_controller, "partition_version", lambda _decided_on: -1),),
    "ISR generation check": (Off(of_broker, "may_join", _always),),
    "truncation by leader epoch": (Off(of_broker, "has_diverged", _never),),
    "high-watermark gate": (Off(of_broker, "gating_isr", lambda isr, _joining: isr),),
    "high watermark of consumers": (Off(of_broker, "visible_end", lambda *_known: 2**31),),
    "leading by a decision of this generation": (Off(of_broker, "is_decided_in", _always),),
    "unseen bounces": (Off(of_controller, "bounced_unseen", _never),),
    "fetch session epoch": (Off(of_broker, "is_next_of_session", _always),),
    "topic id": (Off(of_broker, "is_of_another_topic", _never),),
    "incarnation": (Off(of_controller, "is_other_disk", _never),),
    "no request before its multi is acknowledged": (Off(of_controller, "is_acknowledged", _always),),
    "coordinator epoch": (Off(of_groups, "coordinator_epoch", lambda _version: -1),),
    "group version": (Off(of_groups, "group_version", lambda _version: -1),),
    "generation of a group": (Off(of_groups, "is_of_generation", _always),),
    "epoch of a member": (Off(of_groups, "is_of_member_epoch", _always),),
    "no answer before its multi is acknowledged": (
        Off(of_groups, "may_answer", lambda is_written: True),  # noqa: ARG005 - its only argument has a name
    ),
    "coordinator epoch of transactions": (Off(of_transactions, "coordinator_epoch", lambda _version: -1),),
    "version of a transactional id": (Off(of_transactions, "transaction_version", lambda _version: -1),),
    "raised epoch of a fence": (Off(of_transactions, "raised_epoch", lambda epoch: epoch),),
    "raised epoch of a producer": (Off(deciding, "_taken", _taken_again),),
    "last stable offset": (Off(Producers, "last_stable_offset", _one_too_high),),
    "markers follow leaders": (Off(MarkerSender, "_again", _forget),),
    "offsets with the commit alone": (Off(TransactionsMachine, "_fly", _fly_with_offsets),),
}
