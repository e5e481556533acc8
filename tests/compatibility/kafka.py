"""The requests of Apache Kafka 3.9 and 4.1, with the versions that each release serves.

A test compares them with Kafka's jars. Versions that a release calls unstable are left out; a request
that has no others, or that the release does not know, is None.
Source: org.apache.kafka.common.protocol.ApiKeys of kafka-clients 3.9.1 and 4.1.1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

RELEASES: Final = ("3.9.1", "4.1.1")
Range = tuple[int, int] | None


class KafkaRequest(NamedTuple):
    """A request: its name, and its lowest and highest version in each release."""

    name: str
    in_3_9: Range
    in_4_1: Range


#: {number: request}; the name is that of 4.1
KAFKA: Final = {
    0: KafkaRequest("Produce", (0, 11), (3, 13)),
    1: KafkaRequest("Fetch", (0, 17), (4, 18)),
    2: KafkaRequest("ListOffsets", (0, 9), (1, 10)),
    3: KafkaRequest("Metadata", (0, 12), (0, 13)),
    4: KafkaRequest("LeaderAndIsr", (0, 7), None),
    5: KafkaRequest("StopReplica", (0, 4), None),
    6: KafkaRequest("UpdateMetadata", (0, 8), None),
    7: KafkaRequest("ControlledShutdown", (0, 3), None),
    8: KafkaRequest("OffsetCommit", (0, 9), (2, 9)),
    9: KafkaRequest("OffsetFetch", (0, 9), (1, 9)),
    10: KafkaRequest("FindCoordinator", (0, 6), (0, 6)),
    11: KafkaRequest("JoinGroup", (0, 9), (0, 9)),
    12: KafkaRequest("Heartbeat", (0, 4), (0, 4)),
    13: KafkaRequest("LeaveGroup", (0, 5), (0, 5)),
    14: KafkaRequest("SyncGroup", (0, 5), (0, 5)),
    15: KafkaRequest("DescribeGroups", (0, 5), (0, 6)),
    16: KafkaRequest("ListGroups", (0, 5), (0, 5)),
    17: KafkaRequest("SaslHandshake", (0, 1), (0, 1)),
    18: KafkaRequest("ApiVersions", (0, 4), (0, 4)),
    19: KafkaRequest("CreateTopics", (0, 7), (2, 7)),
    20: KafkaRequest("DeleteTopics", (0, 6), (1, 6)),
    21: KafkaRequest("DeleteRecords", (0, 2), (0, 2)),
    22: KafkaRequest("InitProducerId", (0, 5), (0, 5)),
    23: KafkaRequest("OffsetForLeaderEpoch", (0, 4), (2, 4)),
    24: KafkaRequest("AddPartitionsToTxn", (0, 5), (0, 5)),
    25: KafkaRequest("AddOffsetsToTxn", (0, 4), (0, 4)),
    26: KafkaRequest("EndTxn", (0, 4), (0, 5)),
    27: KafkaRequest("WriteTxnMarkers", (0, 1), (1, 1)),
    28: KafkaRequest("TxnOffsetCommit", (0, 4), (0, 5)),
    29: KafkaRequest("DescribeAcls", (0, 3), (1, 3)),
    30: KafkaRequest("CreateAcls", (0, 3), (1, 3)),
    31: KafkaRequest("DeleteAcls", (0, 3), (1, 3)),
    32: KafkaRequest("DescribeConfigs", (0, 4), (1, 4)),
    33: KafkaRequest("AlterConfigs", (0, 2), (0, 2)),
    34: KafkaRequest("AlterReplicaLogDirs", (0, 2), (1, 2)),
    35: KafkaRequest("DescribeLogDirs", (0, 4), (1, 4)),
    36: KafkaRequest("SaslAuthenticate", (0, 2), (0, 2)),
    37: KafkaRequest("CreatePartitions", (0, 3), (0, 3)),
    38: KafkaRequest("CreateDelegationToken", (0, 3), (1, 3)),
    39: KafkaRequest("RenewDelegationToken", (0, 2), (1, 2)),
    40: KafkaRequest("ExpireDelegationToken", (0, 2), (1, 2)),
    41: KafkaRequest("DescribeDelegationToken", (0, 3), (1, 3)),
    42: KafkaRequest("DeleteGroups", (0, 2), (0, 2)),
    43: KafkaRequest("ElectLeaders", (0, 2), (0, 2)),
    44: KafkaRequest("IncrementalAlterConfigs", (0, 1), (0, 1)),
    45: KafkaRequest("AlterPartitionReassignments", (0, 0), (0, 1)),
    46: KafkaRequest("ListPartitionReassignments", (0, 0), (0, 0)),
    47: KafkaRequest("OffsetDelete", (0, 0), (0, 0)),
    48: KafkaRequest("DescribeClientQuotas", (0, 1), (0, 1)),
    49: KafkaRequest("AlterClientQuotas", (0, 1), (0, 1)),
    50: KafkaRequest("DescribeUserScramCredentials", (0, 0), (0, 0)),
    51: KafkaRequest("AlterUserScramCredentials", (0, 0), (0, 0)),
    52: KafkaRequest("Vote", (0, 1), (0, 2)),
    53: KafkaRequest("BeginQuorumEpoch", (0, 1), (0, 1)),
    54: KafkaRequest("EndQuorumEpoch", (0, 1), (0, 1)),
    55: KafkaRequest("DescribeQuorum", (0, 2), (0, 2)),
    56: KafkaRequest("AlterPartition", (0, 3), (2, 3)),
    57: KafkaRequest("UpdateFeatures", (0, 1), (0, 2)),
    58: KafkaRequest("Envelope", (0, 0), (0, 0)),
    59: KafkaRequest("FetchSnapshot", (0, 1), (0, 1)),
    60: KafkaRequest("DescribeCluster", (0, 1), (0, 2)),
    61: KafkaRequest("DescribeProducers", (0, 0), (0, 0)),
    62: KafkaRequest("BrokerRegistration", (0, 4), (0, 4)),
    63: KafkaRequest("BrokerHeartbeat", (0, 1), (0, 1)),
    64: KafkaRequest("UnregisterBroker", (0, 0), (0, 0)),
    65: KafkaRequest("DescribeTransactions", (0, 0), (0, 0)),
    66: KafkaRequest("ListTransactions", (0, 1), (0, 2)),
    67: KafkaRequest("AllocateProducerIds", (0, 0), (0, 0)),
    68: KafkaRequest("ConsumerGroupHeartbeat", (0, 0), (0, 1)),
    69: KafkaRequest("ConsumerGroupDescribe", (0, 0), (0, 1)),
    70: KafkaRequest("ControllerRegistration", (0, 0), (0, 0)),
    71: KafkaRequest("GetTelemetrySubscriptions", (0, 0), (0, 0)),
    72: KafkaRequest("PushTelemetry", (0, 0), (0, 0)),
    73: KafkaRequest("AssignReplicasToDirs", (0, 0), (0, 0)),
    74: KafkaRequest("ListConfigResources", (0, 0), (0, 1)),
    75: KafkaRequest("DescribeTopicPartitions", (0, 0), (0, 0)),
    76: KafkaRequest("ShareGroupHeartbeat", None, (1, 1)),
    77: KafkaRequest("ShareGroupDescribe", None, (1, 1)),
    78: KafkaRequest("ShareFetch", None, (1, 1)),
    79: KafkaRequest("ShareAcknowledge", None, (1, 1)),
    80: KafkaRequest("AddRaftVoter", (0, 0), (0, 0)),
    81: KafkaRequest("RemoveRaftVoter", (0, 0), (0, 0)),
    82: KafkaRequest("UpdateRaftVoter", (0, 0), (0, 0)),
    83: KafkaRequest("InitializeShareGroupState", None, (0, 0)),
    84: KafkaRequest("ReadShareGroupState", None, (0, 0)),
    85: KafkaRequest("WriteShareGroupState", None, (0, 0)),
    86: KafkaRequest("DeleteShareGroupState", None, (0, 0)),
    87: KafkaRequest("ReadShareGroupStateSummary", None, (0, 0)),
    88: KafkaRequest("StreamsGroupHeartbeat", None, None),
    89: KafkaRequest("StreamsGroupDescribe", None, None),
    90: KafkaRequest("DescribeShareGroupOffsets", None, (0, 0)),
    91: KafkaRequest("AlterShareGroupOffsets", None, (0, 0)),
    92: KafkaRequest("DeleteShareGroupOffsets", None, (0, 0)),
}
