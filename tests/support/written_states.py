"""Topics and partition states written to a real quorum as a tool and the controller's machine write them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from controller.core.effects import Effect, Write
from controller.core.elections import Decisions
from controller.core.io import Io, TermOverError
from controller.core.writing import StateWriter, WrittenStates
from controller.election.plans import Mandate
from controller.runtime import carrying
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.errors import ControllerFencedError
from quorum.metadata.numbers import ControllerEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord


async def create_topic(client: Client, topic: str, record: TopicRecord) -> None:
    """Create the assignment of a topic; the controller creates the states of its partitions."""
    await client.create(paths.topic_path(paths.check_topic(topic)), record.encode())


async def write_states(
    client: Client,
    mandate: Mandate[ControllerEpoch],
    updates: Mapping[PartitionKey, tuple[PartitionStateRecord, int]] | None = None,
    *,
    creations: Mapping[PartitionKey, PartitionStateRecord] | None = None,
) -> WrittenStates:
    """Write new states at their versions, or first ones, in the name of a mandate.

    Raises:
        ControllerFencedError: another controller has been elected.
    """
    effects: list[Effect] = []
    io = Io(effects.append, controller_epoch=mandate.epoch, epoch_version=mandate.epoch_version)
    decisions = Decisions(
        {key: (state, PartitionVersion(version)) for key, (state, version) in (updates or {}).items()},
        dict(creations or {}),
    )
    steps = StateWriter(io).write(decisions)
    while True:
        try:
            awaited = next(steps)
        except StopIteration as end:
            written = end.value
            assert isinstance(written, WrittenStates)
            return written
        except TermOverError as error:
            raise ControllerFencedError(mandate.epoch) from error
        if awaited:
            writes = [each for each in effects if isinstance(each, Write)]
            effects.clear()
            for done in await asyncio.gather(*(carrying.write(client, each) for each in writes)):
                io.take(done)
