"""Reading and writing the typed records through a client: elections, registrations, fenced and versioned
writes.

The thin half of this package: it reads what a plan needs, asks plans.py, writes, and looks again when it lost
a race. Every loop is bounded. A connection loss is looked up here only where the state itself tells what
became of the write (elections, registrations, idempotent creations); a caller's own write with an unknown
outcome is reported as such, never repeated.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [2.4], [3.1], [3.3], [1.1].
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from controller.election.plans import (
    Adopt,
    Compete,
    E,
    HeldBy,
    Mandate,
    Office,
    Register,
    Won,
    named_broker,
    plan_election,
    plan_registration,
)
from quorum.client import (
    BadVersionError,
    Client,
    ConnectionLossError,
    CreateMode,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, PartitionVersion, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import NodeView, read_node
from quorum.metadata.records import (
    BrokerRecord,
    GenerationRecord,
    PartitionStateRecord,
    decode_cluster_id,
    encode_cluster_id,
    encode_controller_epoch,
)
from quorum.metadata.trust import Trust

ROUNDS_MAX: Final = 8
#: A re-created /controller_epoch gets the version that it would have; a multi holds no more writes than this.
EPOCH_VERSION_MAX: Final = 9_999


async def ensure_base_paths(client: Client) -> None:
    """Create the persistent parents of all records, and both epochs with 0; what exists stays as it is."""
    for path in paths.BASE_PATHS:
        await _create_if_missing(client, path, b"")
    for path in (paths.CONTROLLER_EPOCH, paths.COORDINATOR_EPOCH):
        await _create_if_missing(client, path, encode_controller_epoch(0))


async def ensure_cluster_id(client: Client, proposed: str) -> str:
    """Return the cluster's id; the first caller's proposal becomes it."""
    # Who may not create it may read it.
    if await client.exists(paths.CLUSTER_ID) is None:
        await _create_if_missing(client, paths.CLUSTER, b"")
        await _create_if_missing(client, paths.CLUSTER_ID, encode_cluster_id(proposed))
    data, _ = await client.get(paths.CLUSTER_ID)
    return decode_cluster_id(data)


async def _create_if_missing(client: Client, path: str, data: bytes) -> None:
    try:
        await client.create(path, data)
    except NodeExistsError:
        return


# -- offices -------------------------------------------------------------------------------------------------


async def ensure_controller_epoch(client: Client, highest: ControllerEpoch) -> None:
    """Create a missing /controller_epoch with the highest epoch that is known; what exists stays as it is.

    The node also gets the version that so many elections would have given it. A new node begins with version
    0, and the fence of a former controller, which is a version, must not fit a later one by accident.
    """
    transaction = Transaction().create(paths.CONTROLLER_EPOCH, encode_controller_epoch(highest))
    version = 0
    for _ in range(min(highest, EPOCH_VERSION_MAX)):
        transaction.set(paths.CONTROLLER_EPOCH, encode_controller_epoch(highest), version)
        version = next_version(version)
    try:
        await client.multi(transaction)
    except MultiFailedError as error:
        if not isinstance(error.cause, NodeExistsError):
            raise


async def elect(
    client: Client, office: Office[E], broker_id: int, timestamp_ms: int, trust: Trust
) -> Won[E] | HeldBy:
    """Be elected to an office, or learn its holder.

    Winning is one multi: a stale holder's node goes, the new one comes, the epoch rises by one. A lost reply
    is looked up; a stale view of a lagging server is refreshed before the next round. Watch the holder's node
    before calling this.

    Args:
        client: its session will own the holder's node.
        office: what the candidate competes for.
        broker_id: the candidate.
        timestamp_ms: wall clock, informative.
        trust: tells whose registration counts; nobody else can hold an office.
    """
    loss: ConnectionLossError | None = None
    for _ in range(ROUNDS_MAX):
        try:
            plan = await _look_at_election(client, office, broker_id, trust)
            if plan is None:
                await _create_if_missing(client, office.epoch_path, encode_controller_epoch(0))
                continue
            if not isinstance(plan, Compete):
                return plan
            return Won(await _compete(client, office, plan, timestamp_ms))
        except ConnectionLossError as error:
            # The nodes say whether we won; the next call waits for the next connection.
            loss = _less_certain(loss, error)
        except MultiFailedError as error:
            # A holder's node that a stranger gave a child cannot be deleted: it is as good as contended.
            if not isinstance(error.cause, NodeExistsError | NoNodeError | BadVersionError | NotEmptyError):
                raise
            await _sync(client, office.path)
    raise loss or ContendedError(f"the {office.title} election", ROUNDS_MAX)


async def _look_at_election(
    client: Client, office: Office[E], broker_id: int, trust: Trust
) -> Won[E] | HeldBy | Compete[E] | None:
    # The epoch first: plans.py says why.
    epoch, holder = await asyncio.gather(read_node(client, office.epoch_path), read_node(client, office.path))
    if epoch is None:
        return None
    named = named_broker(holder, office)
    registration = None if named is None else await read_node(client, paths.broker_id_path(named))
    if named is not None and not _is_signed(trust, named, registration):
        registration = None
    return plan_election(office, broker_id, client.session_id, epoch, holder, registration)


async def _compete(client: Client, office: Office[E], plan: Compete[E], timestamp_ms: int) -> Mandate[E]:
    transaction = Transaction()
    if plan.delete_version is not None:
        transaction.delete(office.path, plan.delete_version)
    value = office.encode(plan.mandate.broker_id, timestamp_ms)
    transaction.create(office.path, value, CreateMode.EPHEMERAL)
    epoch = encode_controller_epoch(plan.mandate.epoch)
    transaction.set(office.epoch_path, epoch, plan.epoch_version)
    results = await client.multi(transaction)
    return plan.mandate._replace(epoch_version=results[-1].written_stat.version)


async def resign(client: Client, office: Office[E], mandate: Mandate[E]) -> bool:
    """Delete the holder's node, if the mandate still holds.

    Returns:
        False if it was over already (fenced, or the node is gone).
    """
    transaction = Transaction()
    transaction.check(office.epoch_path, mandate.epoch_version)
    transaction.delete(office.path)
    loss: ConnectionLossError | None = None
    for _ in range(ROUNDS_MAX):
        try:
            await client.multi(transaction)
        except MultiFailedError as error:
            if isinstance(error.cause, BadVersionError | NoNodeError):
                # The node has gone under our mandate: an attempt whose reply was lost has deleted it.
                return error.index == 1 and loss is not None and not loss.definite
            raise
        except ConnectionLossError as error:
            loss = _less_certain(loss, error)
        else:
            return True
    assert loss is not None
    raise loss


def _less_certain(before: ConnectionLossError | None, now: ConnectionLossError) -> ConnectionLossError:
    """Return the loss to report of two: one that never left says nothing about an attempt before it."""
    return now if before is None or before.definite or not now.definite else before


async def _sync(client: Client, path: str) -> None:
    try:
        await client.sync(path)
    except ConnectionLossError:
        # Only freshness is lost; the writes that follow carry versions.
        return


# -- brokers -------------------------------------------------------------------------------------------------


def _is_signed(trust: Trust, broker_id: int, registration: NodeView | None) -> bool:
    return registration is not None and trust.is_signed(
        paths.broker_id_path(broker_id), registration.data, registration.stat.ephemeral_owner
    )


async def register_broker(
    client: Client, broker_id: int, record: BrokerRecord, trust: Trust
) -> BrokerGeneration:
    """Register a broker and return its generation, the czxid of its registration.

    A stranger's registration under this id goes.

    Args:
        client: its session will own the registration.
        broker_id: which broker.
        record: what others learn of it; its incarnation must be given.
        trust: signs it.
    """
    if record.incarnation is None:
        raise ValueError("record.incarnation: a broker of Quorate has one")
    loss: ConnectionLossError | None = None
    for _ in range(ROUNDS_MAX):
        try:
            # The generation first: plans.py says why.
            generation, registration = await asyncio.gather(
                read_node(client, paths.broker_generation_path(broker_id)),
                read_node(client, paths.broker_id_path(broker_id)),
            )
            plan = plan_registration(
                broker_id,
                client.session_id,
                record.incarnation,
                registration,
                generation,
                is_signed=_is_signed(trust, broker_id, registration),
            )
            if isinstance(plan, Adopt):
                return plan.generation
            return await _register(client, broker_id, record, trust, plan)
        except ConnectionLossError as error:
            loss = _less_certain(loss, error)
        except MultiFailedError as error:
            if not isinstance(error.cause, NodeExistsError | NoNodeError | BadVersionError):
                raise
            await _sync(client, paths.BROKER_IDS)
    raise loss or ContendedError(f"the registration of broker {broker_id}", ROUNDS_MAX)


async def _register(
    client: Client, broker_id: int, record: BrokerRecord, trust: Trust, plan: Register
) -> BrokerGeneration:
    assert record.incarnation is not None
    transaction = Transaction()
    path = paths.broker_id_path(broker_id)
    if plan.delete_version is not None:
        transaction.delete(path, plan.delete_version)
    transaction.create2(path, trust.sign(path, record.encode(), client.session_id), CreateMode.EPHEMERAL)
    created_at = len(transaction) - 1
    value = GenerationRecord(record.incarnation).encode()
    if plan.generation_version is None:
        transaction.create(paths.broker_generation_path(broker_id), value)
    else:
        transaction.set(paths.broker_generation_path(broker_id), value, plan.generation_version)
    results = await client.multi(transaction)
    return BrokerGeneration(results[created_at].written_stat.czxid)


async def sign_again(client: Client, broker_id: int, trust: Trust) -> None:
    """Sign the registration that this session owns with the first secret; its generation stays.

    Args:
        client: whose session owns it.
        broker_id: which broker.
        trust: of the first secret, and of those that may have signed it.
    """
    path = paths.broker_id_path(broker_id)
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, path)
        if node is None or node.stat.ephemeral_owner != client.session_id:
            return
        signer = trust.signer(path, node.data, client.session_id)
        if signer in (0, None):
            return
        try:
            signed = trust.sign(path, node.data or b"", client.session_id)
            await client.set(path, signed, node.stat.version)
        except BadVersionError:
            continue  # a stranger, or an attempt of ours whose answer was lost
        except NoNodeError:
            return
    raise ContendedError(f"the registration of broker {broker_id}", ROUNDS_MAX)


# -- partition states ----------------------------------------------------------------------------------------


async def read_partition_states(
    client: Client, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, tuple[PartitionStateRecord, PartitionVersion] | None]:
    """Read leaderAndISR of many partitions, pipelined: {key: (state, version of the znode) or None if
    missing}.
    """
    nodes = await asyncio.gather(*(read_node(client, paths.partition_state_path(key)) for key in keys))
    return {
        key: None
        if node is None
        else (PartitionStateRecord.decode(key, node.data), PartitionVersion(node.stat.version))
        for key, node in zip(keys, nodes, strict=True)
    }


async def compare_and_set_state(
    client: Client,
    key: PartitionKey,
    state: PartitionStateRecord,
    partition_version: PartitionVersion,
    joining: Mapping[int, int] | None = None,
) -> PartitionVersion:
    """Write one partition's state as its leader does: only if its znode still has the version.

    Args:
        client: the leader's client.
        key: which partition.
        state: the new state.
        partition_version: version of the state znode that the leader knows.
        joining: {broker id: version of /brokers/generations/N} of followers that join the ISR; the write
            fails if one of them has registered again meanwhile (KIP-903).

    Returns:
        The new version.
    """
    path = paths.partition_state_path(key)
    if not joining:
        stat = await client.set(path, state.encode(), partition_version)
        return PartitionVersion(stat.version)
    transaction = Transaction()
    for broker_id, version in joining.items():
        transaction.check(paths.broker_generation_path(broker_id), version)
    transaction.set(path, state.encode(), partition_version)
    try:
        results = await client.multi(transaction)
    except MultiFailedError as error:
        raise error.cause from error
    return PartitionVersion(results[-1].written_stat.version)
