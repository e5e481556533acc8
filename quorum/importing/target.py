"""The target of an import: steps and a listing through the admin port of any node.

A node that does not answer is left for the next one; every step can be repeated. Soft state only.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from tempfile import TemporaryFile
from typing import IO, Any, Final, TypeVar

import msgpack

from quorum.admin.client import download, send
from quorum.core.importing import BEGIN, OPEN, WRITE
from quorum.errors import StaleStepError, UnreachableError, printable
from quorum.importing.errors import ImportFailedError

#: longer than a node waits for the outcome of a step
ANSWER_TIMEOUT_S: Final = 20.0
#: how long no node may answer before the import gives up
PATIENCE_S: Final = 60.0
_AGAIN_AFTER_S: Final = 0.2
#: statuses of a node that cannot answer now
_LATER: Final = (502, 503, 504)
Found = TypeVar("Found")


class ImportTarget:
    """The cluster that is written."""

    def __init__(self, urls: Sequence[str], source: str) -> None:
        """Ask nothing yet.

        Args:
            urls: of admin ports.
            source: the name of what is imported.
        """
        self._urls = list(urls)
        self._source = source
        #: of the last step; the next one names a higher one
        self._floor = 0

    async def write(self, floor: int, changes: list[list[Any]]) -> int:
        """Set and delete znodes; returns the zxid of that."""
        return await self._step(WRITE, floor, changes)

    async def open(self, floor: int) -> int:
        """Open the cluster to clients; returns the zxid of that, or a later one if its answer was lost."""
        return await self._step(OPEN, floor, None)

    async def listing(self) -> dict[str, str]:
        """Begin the import, or find it under way; returns {path: digest} of what the target holds then."""
        return await self._persist(self._begin_and_list)

    async def _step(self, kind: str, floor: int, changes: list[list[Any]] | None) -> int:
        floor, repeated = max(floor, self._floor + 1), False
        body: dict[str, object] = {"step": kind, "source": self._source, "floor": floor}
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
                self._floor = floor
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
        status, answer = await self._answer("POST", json.dumps(body).encode())
        zxid, floor = answer.get("zxid"), answer.get("floor")
        if status == 200 and isinstance(zxid, int) and isinstance(floor, int):
            self._floor = floor
            return zxid
        problem, remedy = printable(str(answer.get("error"))), printable(str(answer.get("remedy", "")))
        if status == 412:
            raise StaleStepError(problem, remedy)
        if status in _LATER:
            raise UnreachableError(problem, remedy)
        raise ImportFailedError(problem, remedy)

    async def _zxid_if_open(self) -> int | None:
        """Return the zxid of the present node; None if it has an import under way."""
        _, answer = await self._answer("GET")
        zxid = answer.get("zxid")
        return zxid if answer.get("source", "") is None and isinstance(zxid, int) else None

    async def _answer(self, method: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """Ask the present node about the import; returns the status and an object."""
        url = self._urls[0]
        status, content = await asyncio.to_thread(send, url, method, "/v1/import", ANSWER_TIMEOUT_S, body)
        try:
            answer = json.loads(content)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise UnreachableError(f"{url} does not answer as the admin port of a node", _start(url))
        return status, answer

    async def _begin_and_list(self) -> dict[str, str]:
        # The node that is asked has applied all steps then.
        await self._ask({"step": BEGIN, "source": self._source, "floor": 0})
        url = self._urls[0]
        with TemporaryFile() as file:
            status, _ = await asyncio.to_thread(download, url, "/v1/import/znodes", ANSWER_TIMEOUT_S, file)
            if status != 200:
                problem = f"{url} does not list its znodes (HTTP {status})"
                kind = UnreachableError if status in _LATER else ImportFailedError
                raise kind(problem, _start(url))
            file.seek(0)
            found = await asyncio.to_thread(_listed, file)
        if found is None:
            raise UnreachableError(f"{url} did not list all its znodes", _start(url))
        return found


def _listed(file: IO[bytes]) -> dict[str, str] | None:
    """Return {path: digest} of a listing; None: it breaks off."""
    found: dict[str, str] = {}
    for line in file:
        try:
            row = json.loads(line)
        except ValueError:
            return None
        if isinstance(row, list) and len(row) == 2:
            found[row[0]] = row[1]
        else:
            return found if isinstance(row, dict) and row.get("znodes") == len(found) else None
    return None


def _start(url: str) -> str:
    return f"see whether the node of {url} runs, or name others with --admin, and run the import again"
