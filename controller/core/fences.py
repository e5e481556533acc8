"""The rules that keep a stale actor from acting; each is a function of its own.

A simulation replaces one of them at a time and must then find what it prevents.
Source: control-plane design, "Fencing"; KIP-380.
"""

from __future__ import annotations

from controller.core.inputs import Done
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration


def is_acknowledged(outcome: object) -> bool:
    """No request before its multi is acknowledged: only then do states enter the model, and so a request.

    Args:
        outcome: of the multi; None while it is under way.
    """
    return isinstance(outcome, Done)


def is_of_this_life(asked: BrokerGeneration, present: BrokerGeneration) -> bool:
    """An answer counts only for the generation that was asked."""
    return asked == present


def ends_life(error_code: int) -> bool:
    """The generation that a request named is over: nothing more is sent to it."""
    return error_code == ErrorCode.STALE_BROKER_EPOCH


def ends_term(error_code: int) -> bool:
    """A broker knows a later controller: this one is deposed."""
    return error_code == ErrorCode.STALE_CONTROLLER_EPOCH
