"""One principal and what it may do, as the handlers of its requests ask.

Pure. Without access lists everybody may do everything, as in Kafka without an authorizer.
Source: KafkaApis, AuthHelper (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.core.access.lists import ANONYMOUS, AccessLists, Principal
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType

#: The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
REFUSED_BY: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

#: {type: what may be done to a resource of it}, as Kafka answers those that ask what they may do (KIP-430)
OPERATIONS_OF: Final = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
}


#: takes what a principal may not do
OnDenied = Callable[[Operation, ResourceType, str], None]


class Access(NamedTuple):
    """What one principal may do."""

    #: None: everything
    lists: AccessLists | None
    principal: Principal
    #: notes what is refused; None: nobody wants to know
    on_denied: OnDenied | None = None

    def allows(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Say whether the principal may do something to a resource; by default to the cluster."""
        return self.lists is None or self.lists.allows(self.principal, operation, resource_type, name)

    def permits(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Say the same of what the principal itself asked for: that it may not is noted."""
        if self.allows(operation, resource_type, name):
            return True
        if self.on_denied is not None:
            self.on_denied(operation, resource_type, name)
        return False

    def allows_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Say whether the principal may do something to any resource of a type."""
        return self.lists is None or self.lists.allows_some(self.principal, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return all that the principal may do to a resource, as a bit field (KIP-430)."""
        return sum(
            1 << each for each in OPERATIONS_OF[resource_type] if self.allows(each, resource_type, name)
        )

    def refusal(
        self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> ErrorCode | None:
        """Return the code of a refusal, None where the principal may do it."""
        return None if self.permits(operation, resource_type, name) else REFUSED_BY[resource_type]


#: Of peers that have proved the secret, and of everybody where no lists count.
UNLIMITED: Final = Access(None, Principal(ANONYMOUS, ""))
