"""Topics that are created because a client asked for their metadata, where the broker is configured so.

Decides whom to ask: the controller candidate of this broker if it is the controller, else the controller's
broker listener, where no access list counts: the client has the right. Waits for the answer within bounds,
because a client that gets the topic at once need not ask again. Another client may ask for the same topic
meanwhile; that it exists is no error.
Source: Kafka's auto.create.topics.enable; KIP-361.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from broker.client.topics import topic_values
from broker.server.services import BrokerServices
from broker.wire.codec import decode_response, encode_request
from controller.core.requests import NewTopic
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import while_current
from quorum.errors import QuorateError

log = logging.getLogger("quorate.broker.server")

#: How long one Metadata request waits for the topics that it asks for.
CREATE_TIMEOUT_MS: Final = 5_000
#: How many one request has created; for others its client asks again.
CREATED_MAX: Final = 100
_VERSION: Final = 7
_RETRIED: Final = ErrorCode.LEADER_NOT_AVAILABLE
#: Refusals that clients must see; after any other they ask again.
_FINAL: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REPLICATION_FACTOR})


async def create_missing_topics(services: BrokerServices, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Create topics with the defaults, the first CREATED_MAX.

    Args:
        services: the parts of this broker.
        names: of topics, each once.

    Returns:
        {topic that is still missing: what its client gets}
    """
    topics = [NewTopic(name) for name in names[:CREATED_MAX]]
    try:
        codes = await _create(services, topics)
    except QuorateError as error:
        log.warning("%d topics were not created, among them %s: %s", len(topics), names[0], error.message)
        codes = {}
    return {
        name: ErrorCode(codes[name]) if codes.get(name) in _FINAL else _RETRIED
        for name in names
        if name not in services.view.topics
    }


async def _create(services: BrokerServices, topics: Sequence[NewTopic]) -> dict[str, int]:
    controller = services.active_controller()
    if controller is not None:
        outcomes = await controller.create_topics(topics, timeout_ms=CREATE_TIMEOUT_MS, validate_only=False)
        return {name: outcome.error_code for name, outcome in outcomes.items()}
    controller_id = services.view.controller_id
    asking = _ask(services, controller_id, topics)
    return await while_current(asking, lambda: services.view.controller_id == controller_id)


async def _ask(services: BrokerServices, controller_id: int, topics: Sequence[NewTopic]) -> dict[str, int]:
    connection = await services.replicas.fetchers.connect(controller_id)
    try:
        values = {
            "topics": [topic_values(topic) for topic in topics],
            "timeout": CREATE_TIMEOUT_MS,
            "validate_only": False,
        }
        answered = await connection.request(
            ApiKey.CREATE_TOPICS,
            _VERSION,
            encode_request(ApiKey.CREATE_TOPICS, _VERSION, values),
            flexible=True,
            timeout_ms=CREATE_TIMEOUT_MS,
        )
    finally:
        connection.close()
    return {
        row.name: row.error_code for row in decode_response(ApiKey.CREATE_TOPICS, _VERSION, answered).topics
    }
