"""Reads of many nodes, whatever their number and sizes.

A server answers a request for many nodes as a whole or not at all, and bounds the answer; a client bounds the
request. Nobody knows the sizes before, so a list that does not fit is halved, and its halves are asked for
one after the other. A node that does not fit alone is read by itself, as every node can be.
Soft state: none. Source: DIVERGENCES.md, "From ZooKeeper"; DIVERGENCES.md (its bounds).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from quorum.client import lookups, requests
from quorum.client.errors import NoAuthError, NoNodeError, RequestTooLargeError, ServerError
from quorum.client.lookups import ReadOutcome
from quorum.client.session import ClientSession
from quorum.errors import CODE_NUMBERS

#: Nodes that one request reads: a server answers it in one turn.
NODES_MAX: Final = 1_000
#: Requests of one call that are under way at a time.
REQUESTS_MAX: Final = 8


async def read_all(session: ClientSession, paths: Sequence[str]) -> list[ReadOutcome]:
    """Read the data of nodes; one outcome per path, in order.

    Raises:
        ClientError: what a call raises, but for an answer or a request that is too large.
    """
    # The caller may change its list before the replies are there.
    wanted = tuple(paths)
    places = asyncio.Semaphore(REQUESTS_MAX)

    async def read(part: Sequence[str]) -> list[ReadOutcome]:
        try:
            return await session.call(lookups.read_all(part))
        except RequestTooLargeError:
            if len(part) == 1:
                raise
        except ServerError as error:
            if error.server_code != CODE_NUMBERS["QUOTAEXCEEDED"]:
                raise
        if len(part) == 1:
            return [await read_one(part[0])]
        half = len(part) // 2
        return await read(part[:half]) + await read(part[half:])

    async def read_one(path: str) -> ReadOutcome:
        try:
            return await session.call(requests.get(path, None))
        except (NoNodeError, NoAuthError) as error:
            return error

    async def read_in_turn(part: Sequence[str]) -> list[ReadOutcome]:
        async with places:
            return await read(part)

    parts = [wanted[start : start + NODES_MAX] for start in range(0, len(wanted), NODES_MAX)]
    return [each for found in await asyncio.gather(*map(read_in_turn, parts)) for each in found]
