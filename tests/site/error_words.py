"""When an error code is answered, and what its reader does about it; whether it is definite, the code says.

Source: quorum/core/codes.py, quorum/server, controller/wire/codes.py, broker/server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: {ZooKeeper's code: (when, what to do)}, of those that nodes answer with, and of a client's own
ZOOKEEPER: Final[Mapping[int, tuple[str, str]]] = {
    -2: (
        "An operation of a multi was not carried out, because another one failed.",
        "Look at the one that failed.",
    ),
    -4: ("The connection broke before the answer came.", "Read the state again before you repeat a write."),
    -5: ("The request does not follow the protocol.", "Correct the client."),
    -6: ("The server does not have this operation.", "See [DIVERGENCES.md](../../DIVERGENCES.md)."),
    -8: ("An argument is wrong, most often the path.", "Correct it."),
    -13: (
        "A change of members cannot be made: it would leave too few, or no leader carried it out.",
        "Look at `quorate status`; start or add nodes first.",
    ),
    -14: ("Another change of members is under way.", "Ask again in a moment."),
    -101: ("There is no such znode, or its parent is missing.", "Create it, or its parent."),
    -102: (
        "The access list of the znode does not allow the operation.",
        "Prove an identity that the list names.",
    ),
    -103: ("The znode has another version than the one expected.", "Read it again, and decide anew."),
    -108: ("The parent is ephemeral, and can have no children.", "Choose another parent."),
    -110: ("The znode exists already.", "Nothing, if yours was created before; else choose another name."),
    -111: ("The znode has children.", "Delete those first."),
    -112: ("The session is over; its ephemeral znodes are gone.", "Begin a new session."),
    -114: ("The access list is empty or malformed.", "Correct it."),
    -115: ("The server does not believe the name, the password or the certificate.", "Correct it."),
    -118: ("The session is served through another connection by now.", "Nothing: that connection goes on."),
    -119: (
        "The node takes no writes: an import is under way, or it serves reads without a quorum.",
        "Write later, or at another node. `quorate import --cutover` ends an import.",
    ),
    -121: ("This client has no such watch there.", "Nothing: it is gone."),
    -124: (
        "The node serves nobody who has not proven who it is.",
        "Prove a name by SASL, or show a certificate.",
    ),
    -125: (
        "A hard limit of a quota, of watches, or of what one read may answer is reached.",
        "Delete something, raise the limit, or ask for less at once.",
    ),
}

_LOOK: Final = "Nothing: clients look for the leader again."
_JOIN: Final = "Nothing: consumers join again."
_CORRECT: Final = "Correct the request."
_RIGHT: Final = "Give the user that right with Kafka's tools, or prove another name."
_AGAIN: Final = "Nothing: clients ask again."
_NEW_PRODUCER: Final = "Close this producer. If it should run, begin a new one."

#: {Kafka's code: (when, what to do)}, of those that brokers answer with
KAFKA: Final[Mapping[str, tuple[str, str]]] = {
    "UNKNOWN_SERVER_ERROR": (
        "The quorum refused something for good, or the broker has a fault.",
        "Read the broker's log.",
    ),
    "OFFSET_OUT_OF_RANGE": (
        "The offset lies before the log's start or behind its end.",
        "Consumers begin by `auto.offset.reset`.",
    ),
    "CORRUPT_MESSAGE": (
        "The checksum of a batch is wrong, or a batch cannot be opened.",
        "Send it again; look at the producer.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "There is no such topic or partition here.",
        "Create it, or correct its name.",
    ),
    "LEADER_NOT_AVAILABLE": (
        "The partition has no leader at the moment.",
        "Wait. If it lasts: `quorate doctor`.",
    ),
    "NOT_LEADER_OR_FOLLOWER": (
        "Another broker leads the partition, or this one has no replica. A waiting append may be stored.",
        _LOOK,
    ),
    "REQUEST_TIMED_OUT": ("What was asked may still happen, or may have happened.", "Look, then ask again."),
    "BROKER_NOT_AVAILABLE": ("The broker starts or stops.", _AGAIN),
    "REPLICA_NOT_AVAILABLE": ("The broker has no replica of the partition.", _CORRECT),
    "MESSAGE_TOO_LARGE": (
        "A batch is larger than `max.message.bytes`.",
        "Send smaller batches, or raise it.",
    ),
    "STALE_CONTROLLER_EPOCH": ("Another controller has been elected. Between brokers.", "Nothing."),
    "OFFSET_METADATA_TOO_LARGE": (
        "A committed offset has more metadata than it may.",
        "Send less, or raise `groups.offset_metadata_max_bytes`.",
    ),
    "NETWORK_EXCEPTION": ("The coordinator of transactions could not be asked.", _AGAIN),
    "COORDINATOR_LOAD_IN_PROGRESS": ("The coordinator of groups reads its state.", _AGAIN),
    "COORDINATOR_NOT_AVAILABLE": ("There is no coordinator of groups at the moment.", _AGAIN),
    "NOT_COORDINATOR": (
        "Another broker coordinates groups and transactions.",
        "Nothing: clients look for it again.",
    ),
    "INVALID_TOPIC_EXCEPTION": ("The name is none that a topic may have.", "Choose another one."),
    "RECORD_LIST_TOO_LARGE": (
        "The records of a batch have more bytes than it may open to.",
        "Send smaller batches.",
    ),
    "NOT_ENOUGH_REPLICAS": (
        "Fewer replicas are in sync than `min.insync.replicas`. Nothing was appended.",
        "Start the other brokers.",
    ),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": (
        "It was appended, and then too few replicas were in sync.",
        "Start the other brokers. An idempotent producer may send again.",
    ),
    "INVALID_REQUIRED_ACKS": ("`acks` is none of 0, 1 and -1.", _CORRECT),
    "ILLEGAL_GENERATION": ("The group has begun another generation.", _JOIN),
    "INCONSISTENT_GROUP_PROTOCOL": (
        "The members of a group have no assignor in common, or use another protocol.",
        "Configure them alike.",
    ),
    "INVALID_GROUP_ID": ("The name is none that a group may have.", "Choose another one."),
    "UNKNOWN_MEMBER_ID": ("The group does not have this member, or no longer.", _JOIN),
    "INVALID_SESSION_TIMEOUT": (
        "The session timeout lies outside of what `[groups]` allows.",
        "Change `session.timeout.ms`.",
    ),
    "REBALANCE_IN_PROGRESS": ("The group gets a new assignment.", _JOIN),
    "INVALID_COMMIT_OFFSET_SIZE": (
        "The offsets of a group are larger than a group may hold.",
        "Commit fewer partitions.",
    ),
    "TOPIC_AUTHORIZATION_FAILED": ("The user has not that right on the topic.", _RIGHT),
    "GROUP_AUTHORIZATION_FAILED": ("The user has not that right on the group.", _RIGHT),
    "CLUSTER_AUTHORIZATION_FAILED": ("The user has not that right on the cluster.", _RIGHT),
    "INVALID_TIMESTAMP": (
        "A record's time is too far from the leader's clock.",
        "Correct the clock, or `message.timestamp.…`.",
    ),
    "UNSUPPORTED_SASL_MECHANISM": (
        "The listener does not offer this mechanism.",
        "Change the client's, or `sasl.enabled_mechanisms`.",
    ),
    "ILLEGAL_SASL_STATE": ("A step of SASL came where it may not.", "Correct the client."),
    "UNSUPPORTED_VERSION": (
        "The broker does not have this request or version.",
        "See [compatibility](compatibility.md).",
    ),
    "TOPIC_ALREADY_EXISTS": ("The topic exists already.", "Nothing, or choose another name."),
    "INVALID_PARTITIONS": ("The number of partitions is none that may be.", _CORRECT),
    "INVALID_REPLICATION_FACTOR": (
        "There are fewer brokers than replicas are wanted.",
        "Start more brokers, or want fewer replicas.",
    ),
    "INVALID_REPLICA_ASSIGNMENT": (
        "The assignment names a broker twice, or one that does not exist.",
        _CORRECT,
    ),
    "INVALID_CONFIG": (
        "A setting is unknown, or has a value that it cannot have.",
        "See [the settings of topics](settings.md#topics).",
    ),
    "NOT_CONTROLLER": ("Another broker is the controller.", "Nothing: clients look for it again."),
    "INVALID_REQUEST": (
        "The request contradicts itself, or asks for what cannot be changed.",
        "Read the message beside it.",
    ),
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": (
        "A record has a format before 2.",
        "Use a client of Kafka 0.11 or later.",
    ),
    "POLICY_VIOLATION": (
        "The cluster has as many partitions as it may, or a group or transaction is as large as it may be.",
        "Delete some, or raise the limit that the message names.",
    ),
    "OUT_OF_ORDER_SEQUENCE_NUMBER": (
        "A batch of an idempotent producer is missing before this one.",
        _NEW_PRODUCER,
    ),
    "INVALID_PRODUCER_EPOCH": ("A newer producer has taken the id.", _NEW_PRODUCER),
    "INVALID_TXN_STATE": ("The transaction is in a state in which this cannot be done.", "Abort it."),
    "INVALID_PRODUCER_ID_MAPPING": ("The transactional id belongs to another producer id.", _NEW_PRODUCER),
    "INVALID_TRANSACTION_TIMEOUT": (
        "The time-out is longer than `transactions.transaction_max_timeout_ms`.",
        "Ask for a shorter one, or raise that.",
    ),
    "CONCURRENT_TRANSACTIONS": ("The producer's last transaction is not at its end yet.", _AGAIN),
    "TRANSACTION_COORDINATOR_FENCED": ("Another coordinator has been elected. Between brokers.", "Nothing."),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("The user has not that right on the transactional id.", _RIGHT),
    "SECURITY_DISABLED": ("The broker keeps no access lists.", "Set `security.authorizer_class_name`."),
    "OPERATION_NOT_ATTEMPTED": (
        "Another part of the request failed, so this one was not done.",
        "Correct the other part.",
    ),
    "KAFKA_STORAGE_ERROR": (
        "The disk refused, or holds what it cannot hold. The broker stops.",
        "Look at its log and its disk.",
    ),
    "LOG_DIR_NOT_FOUND": ("The broker has no such directory.", _CORRECT),
    "SASL_AUTHENTICATION_FAILED": (
        "The name, the password or the token is wrong.",
        "Correct it: `quorate users set NAME`.",
    ),
    "REASSIGNMENT_IN_PROGRESS": ("The partition is being moved.", "Wait, or cancel that."),
    "NON_EMPTY_GROUP": ("The group has members.", "Stop its consumers first."),
    "GROUP_ID_NOT_FOUND": ("There is no such group.", "Correct its name."),
    "FETCH_SESSION_ID_NOT_FOUND": (
        "The fetch session has given way to others.",
        "Nothing: clients begin another one.",
    ),
    "INVALID_FETCH_SESSION_EPOCH": (
        "A fetch session has lost its step.",
        "Nothing: clients begin another one.",
    ),
    "FENCED_LEADER_EPOCH": ("The client knows an older leader than the present one.", _LOOK),
    "UNKNOWN_LEADER_EPOCH": ("The client knows a newer leader than this broker does.", _AGAIN),
    "UNSUPPORTED_COMPRESSION_TYPE": ("The codec of a batch is not known.", "Choose another compression."),
    "STALE_BROKER_EPOCH": ("A request was for an earlier life of the broker. Between brokers.", "Nothing."),
    "OFFSET_NOT_AVAILABLE": ("A new leader does not know yet how far all have come.", _AGAIN),
    "MEMBER_ID_REQUIRED": ("A new member gets an id first.", "Nothing: consumers join with it."),
    "PREFERRED_LEADER_NOT_AVAILABLE": (
        "The preferred replica is not in sync.",
        "Start its broker, and wait until it has caught up.",
    ),
    "GROUP_MAX_SIZE_REACHED": (
        "The group has as many members as it may.",
        "Stop some, or raise `groups.group_max_size`.",
    ),
    "FENCED_INSTANCE_ID": ("Another consumer has the same `group.instance.id`.", "Give each its own."),
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": (
        "No replica of the partition lives.",
        "Start the brokers that have one.",
    ),
    "ELECTION_NOT_NEEDED": ("The wanted replica leads already.", "Nothing."),
    "NO_REASSIGNMENT_IN_PROGRESS": ("The partition is not being moved.", "Nothing."),
    "GROUP_SUBSCRIBED_TO_TOPIC": ("A member of the group reads the topic.", "Stop its consumers first."),
    "INVALID_RECORD": (
        "A record is malformed, or lacks the key that a compacted topic needs.",
        "Correct the producer.",
    ),
    "UNSTABLE_OFFSET_COMMIT": ("A transaction with these offsets is open.", _AGAIN),
    "THROTTLING_QUOTA_EXCEEDED": (
        "The user creates or deletes topics faster than its quota.",
        "Wait as long as the answer says.",
    ),
    "PRODUCER_FENCED": ("A newer producer has the transactional id.", _NEW_PRODUCER),
    "RESOURCE_NOT_FOUND": ("There is no such user or credential.", "Correct its name."),
    "DUPLICATE_RESOURCE": ("A user is named twice in one request.", _CORRECT),
    "UNACCEPTABLE_CREDENTIAL": (
        "No user can have that name, or the password was hashed too few or too many times.",
        _CORRECT,
    ),
    "UNKNOWN_TOPIC_ID": ("The broker does not know this id of a topic, or no longer.", _LOOK),
    "INCONSISTENT_TOPIC_ID": ("A topic of that name has another id by now.", _LOOK),
    "TRANSACTIONAL_ID_NOT_FOUND": ("There is no such transactional id.", "Correct it."),
    "FETCH_SESSION_TOPIC_ID_ERROR": (
        "A fetch session goes over from names to ids.",
        "Nothing: clients begin another one.",
    ),
    "FENCED_MEMBER_EPOCH": ("The member has been left out of the group, or is behind it.", _JOIN),
    "UNRELEASED_INSTANCE_ID": (
        "Another member with that `group.instance.id` has not left.",
        "Stop it, or wait for its session's end.",
    ),
    "UNSUPPORTED_ASSIGNOR": ("The coordinator does not have that assignor.", "Choose `uniform` or `range`."),
    "STALE_MEMBER_EPOCH": ("The member has not learnt its newest assignment.", _AGAIN),
    "MISMATCHED_ENDPOINT_TYPE": (
        "A broker was asked as if it were a controller of its own.",
        "Ask with `--bootstrap-server`.",
    ),
    "UNSUPPORTED_ENDPOINT_TYPE": ("There are no endpoints of that type.", _CORRECT),
    "TRANSACTION_ABORTABLE": ("The transaction cannot be committed.", "Abort it, and begin it again."),
    "INVALID_REGULAR_EXPRESSION": ("The pattern of topics cannot be read.", "Correct it."),
}
