"""Requests about groups through their handlers, in every version, at a broker that is not the coordinator."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import pytest

from broker.server.handlers import ApiHandlers
from broker.server.requests import Request
from broker.server.table import FOR_CLIENTS
from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from tests.support.broker_wire import whole
from tests.support.group_requests import GROUP_REQUESTS, error_code_of
from tests.support.memory_broker import MemoryParts, config, partition_state, update_metadata

#: Every broker is asked for its groups; while no coordinator is known, the list is not empty but unknown.
EXPECTED = dict.fromkeys((ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS), ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize("api_key", sorted(GROUP_REQUESTS), ids=lambda key: ApiKey(key).name)
async def test_a_broker_that_is_not_the_coordinator_says_so(tmp_path: Path, api_key: ApiKey) -> None:
    parts = MemoryParts.build(config(tmp_path))
    parts.view.apply(update_metadata({"t": [partition_state(0)]}))
    handlers = ApiHandlers(parts.services, for_brokers=False)
    versions = FOR_CLIENTS[api_key].versions
    for version in range(versions.low, versions.high + 1):
        body = memoryview(encode_request(api_key, version, GROUP_REQUESTS[api_key]))
        answer = handlers.handle(Request(api_key, version, 1, "test", body, len(body), 0.0))
        assert isinstance(answer, Awaitable)
        packed = await answer
        assert packed is not None
        found = decode_response(api_key, version, whole(packed))
        code = EXPECTED.get(api_key, ErrorCode.NOT_COORDINATOR)
        assert error_code_of(api_key, version, found) == code, version
