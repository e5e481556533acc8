"""Where a reset moves what a group has committed, and which moment a text names.

Decides that a goal stays within the log of its partition, and that a time without a record behind it is the
end. What may be reset is the coordinator's to say. No state.

Source: Kafka's kafka-consumer-groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from broker.client.client import BrokerClient
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey

_LATEST, _EARLIEST = -1, -2
_TIME_MS_MAX: Final = (1 << 63) - 1
#: of a date without hyphens, which is ISO 8601, too
_DATE_CHARS: Final = 8

GoalKind = Literal["earliest", "latest", "offset", "time", "shift"]


class ResetGoal(NamedTuple):
    """A point to move to.

    Attributes:
        kind: which number it is.
        number: an offset, a time in ms since 1970, or by how many records; 0 for the first two kinds.
    """

    kind: GoalKind
    number: int = 0


def moment_ms(text: str) -> int:
    """Return the ms since 1970 that a text names: itself, or ISO 8601, in UTC unless it says otherwise.

    Raises:
        ValueError: it names none.
    """
    if text.isascii() and text.isdecimal() and len(text) != _DATE_CHARS:
        if len(text) > len(str(_TIME_MS_MAX)) or int(text) > _TIME_MS_MAX:
            raise ValueError("it is too late")
        return int(text)
    given = datetime.fromisoformat(text)
    moment = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


async def reset_goals(
    client: BrokerClient, goal: ResetGoal, keys: Sequence[PartitionKey], before: Mapping[PartitionKey, int]
) -> dict[PartitionKey, int]:
    """Return where each partition goes, within its log.

    Args:
        client: of the brokers.
        goal: where to.
        keys: the partitions.
        before: {partition: what is committed}.

    Raises:
        BrokerRequestError: a partition cannot be asked.
        QuorateError: it is to be shifted, and nothing is committed there.
    """
    first = await client.offsets(keys, _EARLIEST)
    last = await client.offsets(keys, _LATEST)
    match goal.kind:
        case "earliest":
            return first
        case "latest":
            return last
        case "time":
            at = await client.offsets(keys, goal.number)
            return {key: at[key] if at[key] >= 0 else last[key] for key in keys}
        case "offset":
            goals = dict.fromkeys(keys, goal.number)
        case "shift":
            if missing := next((key for key in keys if key not in before), None):
                problem = (
                    f"nothing is committed for {missing.topic}-{missing.partition}: it cannot be shifted"
                )
                raise QuorateError(problem, "choose an offset, or other partitions")
            goals = {key: before[key] + goal.number for key in keys}
    return {key: min(max(goals[key], first[key]), last[key]) for key in keys}
