"""What reading and writing typed records can fail with, beyond the client's own errors.

All of these are definite: whoever gets one knows that the refused operation had no effect.
"""

from __future__ import annotations

from quorum.errors import Fault, QuorateError


class MetadataError(QuorateError):
    """The base of the errors of metadata records and operations."""


class MetadataDecodeError(MetadataError):
    """A znode holds a value that is no record of its format.

    Attributes:
        path: the znode.
        field: the field inside its JSON value, dotted; "" when the whole value is malformed.
        value: what stands there, shortened.
    """

    fault = Fault.OPERATOR

    def __init__(self, path: str, field: str, value: str, wanted: str) -> None:
        place = f"{path}: field {field!r}" if field else path
        super().__init__(f"{place} holds {value}, expected {wanted}", f"correct or delete {path}")
        self.path = path
        self.field = field
        self.value = value


class ControllerFencedError(MetadataError):
    """Another controller has been elected: nothing of the refused write took effect.

    Attributes:
        controller_epoch: the epoch of the writer, which is over.
    """

    fault = Fault.CLIENT

    def __init__(self, controller_epoch: int) -> None:
        super().__init__(
            f"controller epoch {controller_epoch} is over: /controller_epoch has changed", "resign"
        )
        self.controller_epoch = controller_epoch


class BrokerIdInUseError(MetadataError):
    """Another broker is registered under this id.

    Attributes:
        broker_id: the contested id.
    """

    fault = Fault.OPERATOR

    def __init__(self, broker_id: int, path: str, found: str) -> None:
        super().__init__(
            f"broker id {broker_id} is taken: {path} belongs to {found}",
            "give this broker another id, or stop the other one and wait until its session expires",
        )
        self.broker_id = broker_id


class ContendedError(MetadataError):
    """Others changed the same nodes again and again; nothing of the last attempt took effect."""

    fault = Fault.CLIENT
    retriable = True

    def __init__(self, operation: str, rounds: int) -> None:
        super().__init__(f"{operation}: the nodes changed in each of {rounds} rounds", "try again later")


class InvalidSettingError(MetadataError):
    """A setting is unknown or fixed, or has a value that it cannot have; nothing was changed.

    Attributes:
        name: the setting.
        value: what was given.
    """

    fault = Fault.CLIENT

    def __init__(self, name: str, value: str, problem: str, remedy: str) -> None:
        super().__init__(f"setting {name!r}: {value!r} {problem}", remedy)
        self.name = name
        self.value = value


class InvalidTopicSettingError(InvalidSettingError):
    """A setting of a topic."""


class InvalidBrokerSettingError(InvalidSettingError):
    """A setting of a running broker."""
