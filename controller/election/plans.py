"""The decisions of metadata operations: what was read goes in, what to write comes out.

Pure: no client, no time, no waiting; store.py reads, asks here, writes, and asks again when somebody was
faster. Every plan carries the versions that it was decided on, so a write on changed ground fails as a whole
and changes nothing.

Why the order "epoch first, then /controller" matters to the election: deleting a stale /controller at its
version could hit a new controller's node of the same version (both are 0). That election has raised
/controller_epoch, whose older version is part of the same multi, so the multi fails. The order "generation
first, then registration" does the same for brokers: one that has registered since has written its generation.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [2.4], [3.1], [3.3], [3.5],
[1.1], [1.2].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from quorum.metadata import paths
from quorum.metadata.errors import BrokerIdInUseError, MetadataDecodeError
from quorum.metadata.group_records import CoordinatorRecord
from quorum.metadata.numbers import (
    BrokerGeneration,
    ControllerEpoch,
    CoordinatorEpoch,
    next_version,
)
from quorum.metadata.reading import NodeView
from quorum.metadata.records import (
    BrokerRecord,
    ControllerRecord,
    decode_controller_epoch,
)

#: What an office counts its holders with.
E = TypeVar("E", bound=int)


# -- controller ----------------------------------------------------------------------------------------------


class Office(NamedTuple, Generic[E]):
    """What brokers are elected to, each time with a higher epoch."""

    #: Who holds it, for errors and logs.
    title: str
    #: The ephemeral node that its holder owns.
    path: str
    #: The persistent node whose version fences.
    epoch_path: str
    #: Makes an epoch of a number.
    epoch: Callable[[int], E]
    #: (broker id, wall clock in ms) -> value of path
    encode: Callable[[int, int], bytes]
    #: value of path -> broker id; -1: nobody. Raises MetadataDecodeError.
    read_broker_id: Callable[[bytes | None], int]


CONTROLLER_OFFICE: Final[Office[ControllerEpoch]] = Office(
    title="controller",
    path=paths.CONTROLLER,
    epoch_path=paths.CONTROLLER_EPOCH,
    epoch=ControllerEpoch,
    encode=lambda broker_id, timestamp_ms: ControllerRecord(broker_id, timestamp_ms).encode(),
    read_broker_id=lambda data: ControllerRecord.decode(data).broker_id,
)
COORDINATOR_OFFICE: Final[Office[CoordinatorEpoch]] = Office(
    title="coordinator",
    path=paths.COORDINATOR,
    epoch_path=paths.COORDINATOR_EPOCH,
    epoch=CoordinatorEpoch,
    encode=lambda broker_id, _timestamp_ms: CoordinatorRecord(broker_id).encode(),
    read_broker_id=lambda data: CoordinatorRecord.decode(data).broker_id,
)


class Mandate(NamedTuple, Generic[E]):
    """The right to write as the holder of an office, until the epoch's node changes."""

    broker_id: int
    epoch: E
    #: Version of the epoch's node, which fences every write.
    epoch_version: int


class Won(NamedTuple, Generic[E]):
    """This session holds the office already: the reply to its election was lost, or it asks again."""

    mandate: Mandate[E]


class HeldBy(NamedTuple):
    """A live broker holds the office."""

    broker_id: int


class Compete(NamedTuple, Generic[E]):
    """Nobody rightfully holds the office: create the holder's node and raise the epoch, in one multi."""

    #: Version of the stale holder's node to delete first; None when there is none.
    delete_version: int | None
    #: Epoch and version that the epoch's node will have after the victory.
    mandate: Mandate[E]
    #: Version at which the epoch must still stand.
    epoch_version: int
    #: Why the present holder, if there is one, does not count.
    reason: str


def named_broker(holder: NodeView | None, office: Office[E]) -> int | None:
    """Say whose registration an election has to look at; None: the holder's node is absent or malformed."""
    if holder is None:
        return None
    try:
        broker_id = office.read_broker_id(holder.data)
    except MetadataDecodeError:
        return None
    return broker_id if broker_id >= 0 else None


def plan_election(
    office: Office[E],
    broker_id: int,
    session_id: int,
    epoch_node: NodeView,
    holder: NodeView | None,
    registration: NodeView | None,
) -> Won[E] | HeldBy | Compete[E]:
    """Decide what a candidate does next.

    Args:
        office: what the candidate competes for.
        broker_id: the candidate.
        session_id: its session.
        epoch_node: the office's epoch, read before the others.
        holder: the office's holder.
        registration: /brokers/ids/N of the broker that the holder names (named_broker), if it is registered.
    """
    epoch = decode_controller_epoch(epoch_node.data, office.epoch_path)
    # Versions wrap and skip -1, which would mean "any" in a request.
    version = epoch_node.stat.version
    if holder is not None and holder.stat.ephemeral_owner == session_id:
        # Both were written by one multi, so they carry one zxid; anything else was overwritten, or is not
        # ours to claim.
        intact = holder.stat.version == 0 and holder.stat.czxid == epoch_node.stat.mzxid
        if intact and named_broker(holder, office) == broker_id:
            return Won(Mandate(broker_id, office.epoch(epoch), version))
    reason = (
        f"there is no {office.title}"
        if holder is None
        else _stale_reason(office, broker_id, holder, registration)
    )
    if not reason:
        named = named_broker(holder, office)
        assert named is not None
        return HeldBy(named)
    return Compete(
        delete_version=None if holder is None else holder.stat.version,
        mandate=Mandate(broker_id, office.epoch(epoch + 1), next_version(version)),
        epoch_version=version,
        reason=reason,
    )


def _stale_reason(office: Office[E], broker_id: int, holder: NodeView, registration: NodeView | None) -> str:
    """Say why a present holder does not count; "" when it does."""
    named = named_broker(holder, office)
    if named is None:
        return f"{office.path} is malformed or names nobody"
    if holder.stat.version != 0:
        return f"{office.path} was overwritten"
    if named == broker_id:
        return f"{office.path} is of an earlier life of this broker"
    if holder.stat.ephemeral_owner == 0:
        return f"{office.path} names broker {named} and is not ephemeral"
    if registration is None or registration.stat.ephemeral_owner != holder.stat.ephemeral_owner:
        return f"{office.path} names broker {named}, whose session does not own it"
    return ""


# -- broker registration -------------------------------------------------------------------------------------


class Adopt(NamedTuple):
    """The registration is of this session: its czxid is the generation."""

    generation: BrokerGeneration


class Register(NamedTuple):
    """Create the registration and write the generation node, in one multi."""

    #: Version of an earlier life's registration to delete first; None when there is none.
    delete_version: int | None
    #: Version at which the generation node must stand; None when it has to be created.
    generation_version: int | None


def plan_registration(
    broker_id: int,
    session_id: int,
    incarnation: str,
    registration: NodeView | None,
    generation: NodeView | None,
    *,
    is_signed: bool,
) -> Adopt | Register:
    """Decide how a broker registers.

    Args:
        broker_id: which broker.
        session_id: its session.
        incarnation: identity of its data directory.
        registration: /brokers/ids/N.
        generation: /brokers/generations/N, read before the registration.
        is_signed: whether a holder of the peer secret wrote the registration; another one does not count.
    """
    generation_version = None if generation is None else generation.stat.version
    if registration is None:
        return Register(None, generation_version)
    if not is_signed:
        return Register(registration.stat.version, generation_version)
    path = paths.broker_id_path(broker_id)
    try:
        found = BrokerRecord.decode(broker_id, registration.data).incarnation
    except MetadataDecodeError as error:
        raise BrokerIdInUseError(broker_id, path, f"something unreadable ({error.message})") from error
    if found != incarnation:
        owner = "a broker without an incarnation" if found is None else f"incarnation {found}"
        raise BrokerIdInUseError(broker_id, path, f"{owner}, session 0x{registration.stat.ephemeral_owner:x}")
    if registration.stat.ephemeral_owner == session_id:
        return Adopt(BrokerGeneration(registration.stat.czxid))
    return Register(registration.stat.version, generation_version)
