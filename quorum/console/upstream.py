"""Asks the admin ports of the nodes, one at a time, and another one when that is gone.

Decides which node is asked: the same one for as long as it answers, so that a page that wrote sees what it
wrote. A change goes to another node only where none could be reached: what was sent may have been done. Soft
state: the node that answered last.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp

from quorum.admin.client import ANSWER_BYTES_MAX, token_headers
from quorum.doctor.asking import ANSWER_TIMEOUT_S, AdminAsker
from quorum.errors import UnreachableError, printable
from quorum.platform.tls import DIALLING

#: for a change, which waits for a majority
CHANGE_TIMEOUT_S: Final = 15.0


class NodeAnswer(NamedTuple):
    """What a node answered.

    Attributes:
        status: of HTTP.
        fields: the JSON object; empty where the body is none.
        body: as it came.
    """

    status: int
    fields: dict[str, Any]
    body: bytes


class NodeRefusalError(Exception):
    """A node's answer that is an error, with the node's own words.

    Attributes:
        status, problem, remedy, field: for the answer to the browser.
    """

    def __init__(self, answer: NodeAnswer) -> None:
        fields = answer.fields
        self.status = answer.status
        self.problem = printable(str(fields.get("error", f"HTTP {answer.status}")))
        self.remedy = printable(str(fields.get("remedy", "")))
        self.field = str(fields.get("field", ""))
        super().__init__(self.problem)


class Upstream:
    """The admin ports of one quorum."""

    def __init__(
        self, session: aiohttp.ClientSession, context: ssl.SSLContext | None, urls: Sequence[str]
    ) -> None:
        self._session = session
        self._context = context
        #: as they were named
        self.urls = tuple(dict.fromkeys(urls))
        self._current = 0
        #: asks any admin port, those of brokers too
        self.asker = AdminAsker(session, context, self.urls)

    @property
    def url(self) -> str:
        """The node that answered last."""
        return self.urls[self._current]

    def prefer(self, url: str) -> None:
        """Ask this node from now on."""
        if url in self.urls:
            self._current = self.urls.index(url)

    async def ask(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        method: str = "GET",
        fields: Mapping[str, object] | None = None,
        authorization: str | None = None,
        accept: str | None = None,
        timeout_s: float | None = None,
    ) -> NodeAnswer:
        """Send one request to the node that answered last, else to the next ones.

        Args:
            path: as /v1/status.
            query: {name: value}, without those that are None.
            method: of HTTP.
            fields: the body, a JSON object.
            authorization: header of the browser's request; None: the console's own token, if it has one.
            accept: header.
            timeout_s: for the answer; None: the usual one.

        Raises:
            UnreachableError: none answers.
        """
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given, quote_via=quote)}" if given else path
        headers = dict(token_headers()) if authorization is None else {"Authorization": authorization}
        if accept is not None:
            headers["Accept"] = accept
        if method != "GET":
            # A change without a body is one, too.
            headers["Content-Type"] = "application/json"
        body = None if fields is None else json.dumps(fields)
        wait_s = timeout_s or (ANSWER_TIMEOUT_S if method == "GET" else CHANGE_TIMEOUT_S)
        reasons: list[str] = []
        for step in range(len(self.urls)):
            index = (self._current + step) % len(self.urls)
            try:
                answer = await self._send(method, self.urls[index] + target, headers, body, wait_s)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                reasons.append(f"{self.urls[index]}: {str(error) or f'nothing came within {wait_s:g} s'}")
                if method != "GET" and not isinstance(error, aiohttp.ClientConnectorError):
                    break
                continue
            self._current = index
            return answer
        problem = "no node answers" if method == "GET" else "outcome unknown: the node did not answer"
        remedy = "see whether the nodes run" if method == "GET" else "read the state before repeating it"
        raise UnreachableError(printable(f"{problem} ({'; '.join(reasons)})"), remedy)

    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], body: str | None, wait_s: float
    ) -> NodeAnswer:
        async with self._session.request(
            method,
            target,
            headers=headers,
            data=body,
            ssl=self._context or True,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=wait_s),
        ) as response:
            content = await response.content.read(ANSWER_BYTES_MAX + 1)
            while len(content) <= ANSWER_BYTES_MAX and (more := await response.content.read(1 << 20)):
                content += more
            if len(content) > ANSWER_BYTES_MAX:
                raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes came")
            fields: object = None
            if "json" in response.content_type and "ndjson" not in response.content_type:
                try:
                    fields = json.loads(content)
                except RecursionError as error:
                    raise ValueError("what came is too deep") from error
            return NodeAnswer(response.status, fields if isinstance(fields, dict) else {}, content)

    async def fields(
        self, path: str, query: Mapping[str, object] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Ask as `ask` does and return the object that came.

        Raises:
            UnreachableError: no node answers.
            NodeRefusalError: the answer is an error.
        """
        answer = await self.ask(path, query, **more)
        if answer.status >= 300:
            raise NodeRefusalError(answer)
        return answer.fields


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


@asynccontextmanager
async def upstream(urls: Sequence[str]) -> AsyncIterator[Upstream]:
    """Yield what asks the admin ports, by TLS as --ca, --cert and --key say."""
    make = DIALLING.get()
    context = None if make is None else make()
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield Upstream(session, context, urls)
