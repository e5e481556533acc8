"""Which control requests a broker obeys: those for its present life, from the newest controller it knows of.

`judge` answers and changes nothing; `take` remembers who sent a request that has passed. A request for a
generation above the own one passes: the controller has read the registration whose reply is still on its way
to this broker, so that generation begins with the request. Soft state.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-380; docs/internals/requirements.md,
[1.3], [2.4].
"""

from __future__ import annotations

from broker.core import fences
from broker.core.partition import NO_GENERATION
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch


class ControlOrder:
    """Which connection control requests are taken from: the newest by which a controller has spoken."""

    def __init__(self) -> None:
        """Have heard none."""
        self._newest = -1

    def admits(self, number: int) -> bool:
        """Say whether a request of a connection is taken; connections are numbered as they were accepted."""
        if fences.is_former_connection(number, self._newest):
            return False
        self._newest = number
        return True


class ControlGate:
    """The numbers that fence control requests."""

    def __init__(self) -> None:
        """Know no generation and no controller."""
        self.generation = NO_GENERATION
        self.controller_epoch = ControllerEpoch(0)
        #: -1: none.
        self.controller_id = -1

    def judge(self, broker_epoch: BrokerGeneration, controller_epoch: ControllerEpoch) -> ErrorCode:
        """Return what a request is answered that must not be obeyed; NONE: it may be.

        Args:
            broker_epoch: generation of the broker that the request is for.
            controller_epoch: of the controller that sent it.
        """
        if fences.is_stale_generation(broker_epoch, self.generation):
            return ErrorCode.STALE_BROKER_EPOCH
        if fences.is_stale_controller(controller_epoch, self.controller_epoch):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    def must_ask(self, broker_epoch: BrokerGeneration, controller_epoch: ControllerEpoch) -> bool:
        """Whether the quorum must say that a controller was elected: its epoch is above the known one.

        Nothing is asked about a request that is refused anyway.
        """
        is_stale = fences.is_stale_generation(broker_epoch, self.generation)
        return controller_epoch > self.controller_epoch and not is_stale

    def take(
        self, broker_epoch: BrokerGeneration, controller_id: int, controller_epoch: ControllerEpoch
    ) -> bool:
        """Remember who sent a request that has passed; True if another generation begins with it."""
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return self.begin(broker_epoch)

    def begin(self, generation: BrokerGeneration) -> bool:
        """Let a generation of this broker count from now on; True if it is another one.

        No role that was decided for the one before counts in it.
        """
        is_other = generation != self.generation
        self.generation = generation
        return is_other

    def leave(self) -> None:
        """Obey no request for the present registration any more: another one is to follow."""
        self.generation = BrokerGeneration(self.generation + 1)
