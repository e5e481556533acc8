"""The numbers that fence, each with a type of its own, so that none is taken for another.

All are plain ints at run time. Each rises, and what carries a smaller one is refused.
Source: style design, "Names"; seeds [1.2], [2.4], [3.3]; KIP-380; KIP-101.
"""

from __future__ import annotations

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
#: Version of a group's znode: the token of its compare-and-set. -1: there is no znode.
GroupVersion = NewType("GroupVersion", int)
