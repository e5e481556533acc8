"""Connections to the client listeners of brokers, one an address.

Decides which version a request uses: the newest that both sides speak. Opens a connection when it is first
needed and again after its end; a request is never repeated here.
Source: Kafka's protocol guide, "Protocol Requests"; KIP-35, KIP-511.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.client.errors import BrokerRequestError, UnsupportedByBrokerError
from broker.client.proofs import BrokerProof
from broker.wire.codec import Values, decode_response, encode_request, is_flexible
from broker.wire.packing import Parts
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import (
    BrokerAuthenticationError,
    BrokerConnection,
    BrokerConnectionLostError,
    BrokerUnreachableError,
)
from controller.wire.scram import ScramError
from quorum.config.address import parse_member_address
from quorum.errors import UsageError, shown, told_by_os
from quorum.platform.tls import MakeContext, remedy_for_tls

#: The version that every broker knows.
_API_VERSIONS_VERSION: Final = 0
_VERSION_MAX: Final = 32_767
#: of the time for which a proof holds, how much a connection is used
_LIFETIME_SHARE: Final = 0.85

#: The versions that this client speaks, both inclusive.
SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (3, 10),
        ApiKey.FETCH: (4, 16),
        ApiKey.LIST_OFFSETS: (1, 7),
        ApiKey.METADATA: (0, 12),
        ApiKey.OFFSET_COMMIT: (2, 9),
        ApiKey.OFFSET_FETCH: (1, 9),
        ApiKey.FIND_COORDINATOR: (0, 4),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.DELETE_TOPICS: (1, 6),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 0),
    }
)

Address = tuple[str, int]


class Link:
    """One connection and what its broker serves."""

    def __init__(
        self,
        connection: BrokerConnection,
        served: dict[int, tuple[int, int]],
        until_s: float = float("inf"),
    ) -> None:
        self.connection = connection
        self._served = served
        #: by the loop's clock; then another connection takes its place, before its proof is out of date
        self.until_s = until_s

    def version(self, api_key: ApiKey, *, at_least: int = 0, at_most: int = _VERSION_MAX) -> int:
        """Return the version in which a request is sent."""
        oldest, newest = SPOKEN[api_key]
        oldest, newest = max(oldest, at_least), min(newest, at_most)
        if api_key not in self._served:
            raise UnsupportedByBrokerError(
                f"{self.connection.address} does not serve {api_key.name}",
                "name a client listener (the other ports of a broker are not for clients), or a newer broker",
            )
        low, high = self._served[api_key]
        chosen = min(newest, high)
        if chosen < max(oldest, low):
            raise UnsupportedByBrokerError(
                f"broker {self.connection.address} serves {api_key.name} in versions {low} to {high}, "
                f"this client speaks {oldest} to {newest}",
                "use a broker of Kafka 2.8 or later",
            )
        return chosen

    async def request(
        self,
        api_key: ApiKey,
        values: Values | Parts,
        *,
        timeout_ms: int,
        at_least: int = 0,
        at_most: int = _VERSION_MAX,
    ) -> Any:
        """Send a request and return its response, as kio's entity.

        Args:
            api_key: the request.
            values: its body; parts that are packed must fit `version`.
            timeout_ms: after that the connection ends.
            at_least: the oldest version that will do.
            at_most: the newest version that will do.
        """
        version = self.version(api_key, at_least=at_least, at_most=at_most)
        body = b"".join(values) if isinstance(values, list) else encode_request(api_key, version, values)
        answer = await self.connection.request(
            api_key, version, body, flexible=is_flexible(api_key, version), timeout_ms=timeout_ms
        )
        return decode_response(api_key, version, answer)


class Links:
    """The connections of one client."""

    def __init__(self, client_id: str, tls: MakeContext | None, sasl: BrokerProof | None) -> None:
        self._client_id = client_id
        self._tls = tls
        self._sasl = sasl
        self._links: dict[Address, Link] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    async def get(self, address: Address, *, timeout_ms: int) -> Link:
        """Return the connection to an address; opens it if there is none."""
        async with self._opening.setdefault(address, asyncio.Lock()):
            link = self._links.get(address)
            loop = asyncio.get_running_loop()
            if link is not None and loop.time() >= link.until_s:
                # What is under way on it has its time.
                loop.call_later(timeout_ms / 1000, link.connection.close)
                link = None
            if link is None or link.connection.closed:
                link = self._links[address] = await self._open(address, timeout_ms)
            return link

    async def _open(self, address: Address, timeout_ms: int) -> Link:
        name = f"{address[0]}:{address[1]}"
        remedy = "see that the broker runs and that the address is that of its client listener"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await BrokerConnection.connect(
                    *address, client_id=self._client_id, tls=self._tls
                )
        except TimeoutError as error:
            problem = f"broker {name} does not answer within {timeout_ms} ms"
            raise BrokerUnreachableError(problem, remedy) from error
        except OSError as error:
            problem = f"broker {name} cannot be reached: {told_by_os(error, 'connect')}"
            if isinstance(error, ssl.SSLError):
                remedy = remedy_for_tls(error)
            raise BrokerUnreachableError(problem, remedy) from error
        negotiated = False
        try:
            body = await connection.request(
                ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, b"", flexible=False, timeout_ms=timeout_ms
            )
            response = decode_response(ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, body)
            if response.error_code != ErrorCode.NONE:
                raise BrokerRequestError(f"broker {name}, ApiVersions", response.error_code)
            until_s = float("inf")
            if self._sasl is not None:
                lifetime_ms = await connection.prove(self._sasl.begin(), timeout_ms)
                if lifetime_ms:
                    until_s = asyncio.get_running_loop().time() + lifetime_ms * _LIFETIME_SHARE / 1000
            negotiated = True
        except BrokerConnectionLostError as error:
            # It is not served yet: nothing had an effect.
            hint = "; a port that speaks TLS needs --ca" if self._tls is None else ""
            raise BrokerUnreachableError(f"{error.message}{hint}", remedy) from error
        except ScramError as error:
            problem = f"broker {name} and this client: {error.message}"
            raise BrokerAuthenticationError(problem, error.remedy) from error
        finally:
            if not negotiated:
                connection.close()
        return Link(
            connection,
            {row.api_key: (row.min_version, row.max_version) for row in response.api_keys},
            until_s,
        )

    def close(self) -> None:
        """End every connection."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()


def parse_address(text: str) -> Address:
    """Read HOST:PORT of a client listener; raises UsageError."""
    try:
        address = parse_member_address(text)
    except ValueError as error:
        raise UsageError(f"the address {shown(text)} of a broker {error}", "give HOST:PORT,…") from error
    return address.host, address.port
