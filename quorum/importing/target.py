"""The target of an import: steps and a listing through the admin port of any node.

A node that does not answer is left for the next one; every step can be repeated. Soft state only.

Source: docs/http.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import msgpack

from quorum.admin.client import token_headers
from quorum.core.importing import BEGIN, OPEN, WRITE
from quorum.errors import StaleStepError, UnreachableError, printable
from quorum.importing.errors import ImportFailedError
from quorum.platform.tls import DIALLING

#: longer than a node waits for the outcome of a step
ANSWER_TIMEOUT_S: Final = 20.0
#: how long no node may carry out a step before the import gives up
PATIENCE_S: Final = 60.0
_AGAIN_AFTER_S: Final = 0.2
_LINE_BYTES_MAX: Final = 1 << 20


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

    async def begin(self) -> int:
        """Begin the import, or find it under way; the node that is asked has applied all steps then."""
        return await self._step(BEGIN, 0, None)

    async def write(self, zxid_min: int, changes: list[list[Any]]) -> int:
        """Set and delete znodes; returns the zxid of that."""
        return await self._step(WRITE, zxid_min, changes)

    async def open(self, zxid_min: int) -> int:
        """Open the cluster to clients; returns the zxid of that."""
        return await self._step(OPEN, zxid_min, None)

    async def _step(self, kind: str, zxid_min: int, changes: list[list[Any]] | None) -> int:
        body: dict[str, object] = {"step": kind, "source": self._source, "zxid_min": zxid_min}
        if changes is not None:
            body["changes"] = base64.b64encode(msgpack.packb(changes)).decode()
        if kind != BEGIN:
            body["zxid_min"] = max(zxid_min, self._zxid_min + 1)
        loop, repeated = asyncio.get_running_loop(), False
        give_up_s = loop.time() + PATIENCE_S
        while True:
            try:
                return await self._ask(body)
            except StaleStepError:
                if not repeated:
                    raise
                # It was carried out the first time; if another step was, the comparison finds it.
                self._zxid_min = int(str(body["zxid_min"]))
                return self._zxid_min
            except ImportFailedError:
                if not (repeated and kind == OPEN and await self._is_open()):
                    raise
                return self._zxid_min + 1
            except UnreachableError:
                repeated = True
                if loop.time() > give_up_s:
                    raise
                self._urls.append(self._urls.pop(0))
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _ask(self, body: dict[str, object]) -> int:
        """Send a step to the present node."""
        assert self._session is not None
        url = self._urls[0]
        try:
            async with self._session.post(
                f"{url}/v1/import", json=body, headers=token_headers(), ssl=self._tls or True
            ) as response:
                answer = await response.json(content_type=None)
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = printable(str(error)) or type(error).__name__
            raise UnreachableError(f"{url} does not answer: {reason}", _start(url)) from error
        if not isinstance(answer, dict):
            raise UnreachableError(f"{url} does not answer as the admin port of a node", _start(url))
        if status == 200 and isinstance(answer.get("zxid"), int):
            zxid: int = answer["zxid"]
            self._zxid_min = int(answer["zxid_min"])
            return zxid
        problem, remedy = printable(str(answer.get("error"))), printable(str(answer.get("remedy", "")))
        if status == 412:
            raise StaleStepError(problem, remedy)
        if status in (502, 503, 504):
            raise UnreachableError(problem, remedy)
        raise ImportFailedError(problem, remedy)

    async def _is_open(self) -> bool:
        """Tell whether the present node has no import under way."""
        assert self._session is not None
        async with self._session.get(
            f"{self._urls[0]}/v1/import", headers=token_headers(), ssl=self._tls or True
        ) as response:
            answer = await response.json(content_type=None)
            return isinstance(answer, dict) and answer.get("source", "") is None

    async def listing(self) -> dict[str, str]:
        """Return {path: digest} of what the target holds; call `begin` before."""
        assert self._session is not None
        url, found = self._urls[0], dict[str, str]()
        try:
            async with self._session.get(
                f"{url}/v1/import/znodes", headers=token_headers(), ssl=self._tls or True
            ) as response:
                if response.status != 200:
                    raise ImportFailedError(f"{url} does not list its znodes (HTTP {response.status})", "")
                async for line in response.content:
                    row = json.loads(line)
                    if isinstance(row, list):
                        found[row[0]] = row[1]
                    elif row["znodes"] == len(found):
                        return found
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, IndexError) as error:
            reason = printable(str(error)) or type(error).__name__
            raise UnreachableError(f"{url} does not answer: {reason}", _start(url)) from error
        raise UnreachableError(f"{url} did not list all its znodes", _start(url))


def _start(url: str) -> str:
    return f"see whether the node of {url} runs, or name others with --admin, and run the import again"
