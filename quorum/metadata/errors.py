"""What reading and writing typed records can fail with, beyond the client's own errors.

All of these are definite: the refused operation had no effect.
"""

from __future__ import annotations

from typing import ClassVar, Final

from quorum.client import (
    ClientClosedError,
    SessionExpiredError,
)
from quorum.errors import Fault, QuorateError, quoted
from quorum.metadata.paths import missing_topic


class MetadataError(QuorateError):
    """The base of the errors of metadata records and operations."""


class MetadataDecodeError(MetadataError):
    """A znode holds a value that is not a record of its format.

    Attributes:
        path: the znode.
        field: the field inside its JSON value, dotted; "" when the whole value is malformed.
        value: what it holds, shortened.
    """

    fault = Fault.OPERATOR

    def __init__(self, path: str, field: str, value: str, wanted: str) -> None:
        place = f"{path}: field {field!r}" if field else path
        remedy = f"correct or delete {path}"
        if field == "version":
            remedy = f"update this process to the build that wrote {path}, or correct it"
        super().__init__(f"{place} holds {value}, expected {wanted}", remedy)
        self.path = path
        self.field = field
        self.value = value


class FencedError(MetadataError):
    """Another broker has been elected to an office: nothing of the refused write took effect."""

    fault = Fault.CLIENT


class ControllerFencedError(FencedError):
    """Another controller has been elected: nothing of the refused write took effect.

    Attributes:
        controller_epoch: the epoch of the writer, which is over.
    """

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


class NoSessionError(MetadataError):
    """This broker has no session with the quorum at the moment; nothing was changed."""

    retriable = True

    def __init__(self) -> None:
        super().__init__("this broker has no session with the quorum", "try again later")


class NoSuchTopicError(MetadataError):
    """The topic does not exist; nothing was changed."""

    fault = Fault.CLIENT

    def __init__(self, topic: str) -> None:
        # Kafka's words, as those of settings below: scripts look for them.
        super().__init__(missing_topic(topic), "create it, or correct its name")


class InvalidSettingError(MetadataError):
    """A setting is unknown or fixed, or has a value that it cannot have; nothing was changed.

    Attributes:
        name: the setting.
        value: what was given.
    """

    fault = Fault.CLIENT
    #: Kafka's.
    words: ClassVar[str] = "Invalid value {value} for configuration {name}: it {problem}"

    def __init__(self, name: str, value: str, problem: str, remedy: str) -> None:
        message = self.words.format(name=quoted(name), value=quoted(value), problem=problem)
        super().__init__(message, remedy)
        self.name = name
        self.value = value


class InvalidTopicSettingError(InvalidSettingError):
    """A setting of a topic."""


class NotAListError(InvalidSettingError):
    """Something was to be appended to a setting that is not a list, or subtracted; nothing was changed."""

    words = "Config value {problem} is not allowed for config key: {name}"


class UnknownTopicSettingError(InvalidTopicSettingError):
    """A setting that no topic has."""

    words = "Unknown topic config name: {name}"


class ConflictingTopicSettingsError(InvalidTopicSettingError):
    """Settings that exclude each other."""

    words = "conflict topic config setting {problem}"


class NullTopicSettingError(InvalidTopicSettingError):
    """Settings without a value."""

    words = "Null value not supported for topic configs: {name}"


class InvalidBrokerSettingError(InvalidSettingError):
    """A setting of a running broker."""


class FixedBrokerSettingError(InvalidBrokerSettingError):
    """A setting that a broker reads at its start alone."""

    words = "Cannot update these configs dynamically: Set({name})"


#: The session is over, and with it every office that it holds.
SESSION_OVER: Final = (SessionExpiredError, ClientClosedError)
