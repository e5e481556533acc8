"""Which handler answers which request, and the way from a frame's body to the body of its response.

Source: control-plane design, "API versions".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from typing import Final

from broker.server.api.acls import create_acls, delete_acls, describe_acls
from broker.server.api.configs import describe_configs, incremental_alter_configs
from broker.server.api.consumer_groups import consumer_group_describe, consumer_group_heartbeat
from broker.server.api.control import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from broker.server.api.coordinators import find_coordinator
from broker.server.api.fetch import fetch
from broker.server.api.group_offsets import offset_commit, offset_delete, offset_fetch
from broker.server.api.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from broker.server.api.list_offsets import list_offsets, offset_for_leader_epoch
from broker.server.api.metadata import describe_cluster, metadata
from broker.server.api.partition_admin import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from broker.server.api.produce import produce
from broker.server.api.producer_ids import init_producer_id
from broker.server.api.topics import create_partitions, create_topics, delete_topics
from broker.server.requests import Answer, Call, Request, Response
from broker.server.services import BrokerServices
from broker.wire.apis import BROKER_APIS, CLIENT_APIS, ApiKey, Versions
from broker.wire.codec import REQUEST_ITEMS_MAX, LongResponse, decode_request, encode_response, is_long
from controller.messages.decoding import ANY_NUMBER
from controller.messages.entities import CONTROL_VERSIONS
from controller.messages.entities import decode_request as decode_control_request

Handler = Callable[[BrokerServices, Call], Answer | Awaitable[Answer]]

#: ApiVersions and the SASL requests are answered by the connection itself: they are about it.
_HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.LEADER_AND_ISR: leader_and_isr,
    ApiKey.STOP_REPLICA: stop_replica,
    ApiKey.UPDATE_METADATA: update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
}
#: Those that may wait.
_WAITING: Final = {api_key for api_key, handler in _HANDLERS.items() if iscoroutinefunction(handler)}


class ApiHandlers:
    """The requests of one listener, carried out by one broker."""

    def __init__(self, services: BrokerServices, *, for_brokers: bool) -> None:
        """Serve the broker listener (`for_brokers`) or the client listener."""
        self._services = services
        self._for_brokers = for_brokers
        #: A broker fetches every partition that it follows by one request.
        self._items_max = ANY_NUMBER if for_brokers else REQUEST_ITEMS_MAX
        self.apis: Mapping[int, Versions] = BROKER_APIS if for_brokers else CLIENT_APIS

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        """Carry a request out; see broker.server.requests.Api."""
        if request.api_key in CONTROL_VERSIONS:
            body = decode_control_request(request.api_key, request.api_version, request.body)
        else:
            body = decode_request(
                request.api_key, request.api_version, request.body, items_max=self._items_max
            )
        call = Call(
            request.api_key,
            request.api_version,
            request.client_id,
            body,
            self._for_brokers,
            request.client_host,
            request.answer_bytes_max,
        )
        handler = _HANDLERS[request.api_key]
        if request.api_key in _WAITING:
            return _answer_later(handler, self._services, call)
        answer = handler(self._services, call)
        assert not isinstance(answer, Awaitable)
        return _encode(call, answer)


async def _answer_later(handler: Handler, services: BrokerServices, call: Call) -> Response:
    # The handler begins in here: a connection may end before its request has begun.
    answer = handler(services, call)
    return _encode(call, await answer if isinstance(answer, Awaitable) else answer)


def _encode(call: Call, answer: Answer) -> Response:
    if answer is None or isinstance(answer, list):
        return answer
    if is_long(answer):
        return LongResponse(call.api_key, call.api_version, answer)
    return [encode_response(call.api_key, call.api_version, answer)]
