"""The gate for control requests: whose requests pass, and that a question changes nothing."""

from __future__ import annotations

from broker.core.control_gate import ControlGate, ControlOrder
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch


def gate(generation: int = 20, controller_epoch: int = 3) -> ControlGate:
    opened = ControlGate()
    assert opened.take(BrokerGeneration(generation), 9, ControllerEpoch(controller_epoch))
    return opened


def judge(opened: ControlGate, broker_epoch: int, controller_epoch: int) -> ErrorCode:
    return opened.judge(BrokerGeneration(broker_epoch), ControllerEpoch(controller_epoch))


def test_requests_for_a_former_life_and_of_a_former_controller_are_refused() -> None:
    assert judge(gate(), 19, 4) is ErrorCode.STALE_BROKER_EPOCH
    assert judge(gate(), 20, 2) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert judge(gate(), 20, 3) is ErrorCode.NONE


def test_only_the_newest_connection_that_has_spoken_is_obeyed() -> None:
    order = ControlOrder()
    assert [order.admits(number) for number in (3, 5, 5, 4, 3, 6, 5)] == [
        *(True, True, True, False, False, True, False)
    ]


def test_question_takes_nothing() -> None:
    opened = gate()
    assert judge(opened, 21, 4) is ErrorCode.NONE
    assert (opened.generation, opened.controller_epoch, opened.controller_id) == (20, 3, 9)


def test_generation_begins_with_a_request_for_it() -> None:
    opened = gate()
    assert not opened.take(BrokerGeneration(20), 8, ControllerEpoch(4))
    assert opened.take(BrokerGeneration(21), 8, ControllerEpoch(4))
    assert (opened.generation, opened.controller_epoch, opened.controller_id) == (21, 4, 8)
    assert judge(opened, 20, 5) is ErrorCode.STALE_BROKER_EPOCH


def test_only_a_larger_controller_epoch_is_asked_about() -> None:
    opened = gate()
    assert opened.must_ask(BrokerGeneration(20), ControllerEpoch(4))
    assert not opened.must_ask(BrokerGeneration(20), ControllerEpoch(3))
    assert not opened.must_ask(BrokerGeneration(19), ControllerEpoch(4))


def test_left_generation_is_refused() -> None:
    opened = gate()
    opened.leave()
    assert judge(opened, 20, 3) is ErrorCode.STALE_BROKER_EPOCH
    assert opened.begin(BrokerGeneration(30))
    assert not opened.begin(BrokerGeneration(30))
