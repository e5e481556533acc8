"""The numbers that fence, each with a type of its own, so that none is taken for another.

All are plain ints at run time. Each rises, and what carries a smaller one is refused.
Source: docs/internals/requirements.md, [1.2], [2.4], [3.3]; KIP-380; KIP-101.
"""

from __future__ import annotations

import uuid
from typing import NewType

#: Rises by 1 at each election of a controller; fences older controllers.
ControllerEpoch = NewType("ControllerEpoch", int)
#: czxid of a broker's registration; fences that broker's former lives. Kafka calls it the broker epoch.
BrokerGeneration = NewType("BrokerGeneration", int)
#: Rises by 1 with each decision of the controller about a partition; fences its former leaders.
LeaderEpoch = NewType("LeaderEpoch", int)
#: Version of a partition's state znode: the token of its compare-and-set. Kafka calls it the partition epoch.
PartitionVersion = NewType("PartitionVersion", int)
#: Rises by 1 at each election of a coordinator of groups; fences older coordinators.
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
#: Rises with each rebalance of a group; fences members that missed one. -1: none.
GenerationId = NewType("GenerationId", int)
#: Version of a group's znode: the token of its compare-and-set. -1: no znode exists.
GroupVersion = NewType("GroupVersion", int)
#: What a topic keeps for life; a later one of the same name has another.
TopicId = uuid.UUID


def drawn_topic_id(bits: int) -> TopicId:
    """Return the topic id that 128 random bits make."""
    return uuid.UUID(int=bits, version=4)


def next_version(version: int) -> int:
    """Version of a znode after one more setData: int32, and never -1 (ZOOKEEPER-4743)."""
    following = version + 1
    if following > 2**31 - 1:
        return -(2**31)
    return 0 if following == -1 else following
