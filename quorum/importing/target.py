"""The target of an import: steps and a listing through the admin port of any node.

A node that does not answer is left for the next one; every step can be repeated. Soft state only.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import aiohttp
import msgpack

from quorum.admin.client import token_headers
from quorum.core.importing import BEGIN, OPEN, WRITE
from quorum.errors import StaleStepError, UnreachableError, printable
from quorum.importing.errors import ImportFailedError
from quorum.platform.tls import DIALLING

#: longer than a node waits for the outcome of a step
ANSWER_TIMEOUT_S: Final = 20.0
#: how long no node may answer before the import gives up
PATIENCE_S: Final = 60.0
_AGAIN_AFTER_S: Final = 0.2
_LINE_BYTES_MAX: Final = 1 << 20
#: statuses of a node that cannot answer now
_LATER: Final = (502, 503, 504)
Found = TypeVar("Found")


class ImportTarget:
    """The cluster that is written."""

    def __init__(self, urls: Sequence[str], source: str) -> None:
        """Connect to nothing yet.

        Args:
            urls: of admin ports.
            source: the name of what is imported.
        """
        self._urls = list(urls)
        self._source = source
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        #: of the last step; the next one names a higher one
        self._zxid_min = 0

    async def start(self) -> None:
        """Prepare to ask."""
        make = DIALLING.get()
        self._tls = None if make is None else make()
        timeout = aiohttp.ClientTimeout(total=None, connect=ANSWER_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S)
        # No proxy of the environment: a node on loopback must never be asked through one.
        self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False, read_bufsize=_LINE_BYTES_MAX)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def write(self, zxid_min: int, changes: list[list[Any]]) -> int:
        """Set and delete znodes; returns the zxid of that."""
        return await self._step(WRITE, zxid_min, changes)

    async def open(self, zxid_min: int) -> int:
        """Open the cluster to clients; returns the zxid of that, or a later one if its answer was lost."""
        return await self._step(OPEN, zxid_min, None)

    async def listing(self) -> dict[str, str]:
        """Begin the import, or find it under way; returns {path: digest} of what the target holds then."""
        return await self._persist(self._begin_and_list)

    async def _step(self, kind: str, zxid_min: int, changes: list[list[Any]] | None) -> int:
        floor, repeated = max(zxid_min, self._zxid_min + 1), False
        body: dict[str, object] = {"step": kind, "source": self._source, "zxid_min": floor}
        if changes is not None:
            body["changes"] = base64.b64encode(msgpack.packb(changes)).decode()

        async def attempt() -> int:
            nonlocal repeated
            is_repeated, repeated = repeated, True
            try:
                return await self._ask(body)
            except StaleStepError:
                if kind == OPEN or not is_repeated:
                    raise
                # It was carried out the first time; if another step was, the comparison finds it.
                self._zxid_min = floor
                return floor
            except ImportFailedError:
                zxid = await self._zxid_if_open() if kind == OPEN and is_repeated else None
                if zxid is None:
                    raise
                return zxid

        return await self._persist(attempt)

    async def _persist(self, attempt: Callable[[], Awaitable[Found]]) -> Found:
        """Attempt something at one node after the other until one answers."""
        loop, give_up_s = asyncio.get_running_loop(), 0.0
        while True:
            try:
                return await attempt()
            except UnreachableError:
                # A listing may have taken long before it broke off.
                give_up_s = give_up_s or loop.time() + PATIENCE_S
                if loop.time() > give_up_s:
                    raise
                self._urls.append(self._urls.pop(0))
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _ask(self, body: dict[str, object]) -> int:
        """Send a step to the present node."""
        url = self._urls[0]
        async with self._answered("POST", "/v1/import", body) as response:
            answer, status = await response.json(content_type=None), response.status
        if not isinstance(answer, dict):
            raise UnreachableError(f"{url} does not answer as the admin port of a node", _start(url))
        if status == 200 and isinstance(answer.get("zxid"), int):
            zxid: int = answer["zxid"]
            self._zxid_min = int(answer["zxid_min"])
            return zxid
        problem, remedy = printable(str(answer.get("error"))), printable(str(answer.get("remedy", "")))
        if status == 412:
            raise StaleStepError(problem, remedy)
        if status in _LATER:
            raise UnreachableError(problem, remedy)
        raise ImportFailedError(problem, remedy)

    async def _zxid_if_open(self) -> int | None:
        """Return the zxid of the present node; None if it has an import under way."""
        async with self._answered("GET", "/v1/import") as response:
            answer = await response.json(content_type=None)
        if not isinstance(answer, dict) or answer.get("source", "") is not None:
            return None
        return int(answer["zxid"])

    async def _begin_and_list(self) -> dict[str, str]:
        # The node that is asked has applied all steps then.
        await self._ask({"step": BEGIN, "source": self._source, "zxid_min": 0})
        url, found = self._urls[0], dict[str, str]()
        async with self._answered("GET", "/v1/import/znodes") as response:
            if response.status != 200:
                problem = f"{url} does not list its znodes (HTTP {response.status})"
                kind = UnreachableError if response.status in _LATER else ImportFailedError
                raise kind(problem, _start(url))
            async for line in response.content:
                row = json.loads(line)
                if isinstance(row, list):
                    found[row[0]] = row[1]
                elif row["znodes"] == len(found):
                    return found
        raise UnreachableError(f"{url} did not list all its znodes", _start(url))

    @asynccontextmanager
    async def _answered(
        self, method: str, path: str, body: dict[str, object] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask the present node; what goes wrong until its answer is read is an UnreachableError."""
        assert self._session is not None
        url = self._urls[0]
        try:
            async with self._session.request(
                method, f"{url}{path}", json=body, headers=token_headers(), ssl=self._tls or True
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, IndexError) as error:
            reason = printable(str(error)) or type(error).__name__
            raise UnreachableError(f"{url} does not answer: {reason}", _start(url)) from error


def _start(url: str) -> str:
    return f"see whether the node of {url} runs, or name others with --admin, and run the import again"
