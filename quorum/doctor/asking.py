"""Asks admin ports, several at once and each within a bound, whatever hangs behind them.

Decides how long an answer may take and how large it may be. Changes nothing: it sends GET alone. Soft state:
the connections of one look.

Source: docs/reference/http.md; RFC 9110, Date.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from quorum.admin.client import ANSWER_BYTES_MAX, token_headers
from quorum.errors import UnreachableError, printable
from quorum.platform.tls import DIALLING

#: for one answer, its connection included
ANSWER_TIMEOUT_S: Final = 4.0
#: an answer that took longer says nothing about a clock
CLOCK_ROUND_S_MAX: Final = 1.0
_PAGE_ITEMS: Final = 1000
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class RefusedError(UnreachableError):
    """An admin port that answers and does not say what it was asked, for want of a token as a rule."""


class Page(NamedTuple):
    """One answer.

    Attributes:
        clock_ahead_s: the clock of who answered minus ours, to half a second; None: it is not known.
    """

    status: int
    body: bytes
    clock_ahead_s: float | None


class Metrics:
    """The samples of a page of metrics."""

    def __init__(self, text: str) -> None:
        """Read the page.

        Raises:
            ValueError: it is not in Prometheus' format.
        """
        #: [(name, labels, value)]
        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def value(self, name: str) -> float | None:
        """Return the value of the first sample of a name."""
        return next((value for each, _, value in self._samples if each == name), None)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return {value of a label: value of the sample}."""
        return {labels[label]: value for each, labels, value in self._samples if each == name}

    def label(self, name: str, label: str) -> str | None:
        """Return a label of the first sample of a name."""
        return next((labels.get(label) for each, labels, _ in self._samples if each == name), None)

    def buckets(self, name: str) -> tuple[tuple[float, float], ...]:
        """Return rising (upper bound, count up to it) of a histogram without labels."""
        bounds = self.by_label(f"{name}_bucket", "le")
        return tuple(sorted((float(bound), count) for bound, count in bounds.items()))


class AdminAsker:
    """Asks admin ports within a time."""

    def __init__(
        self, session: aiohttp.ClientSession, context: ssl.SSLContext | None, named: Collection[str]
    ) -> None:
        """Ask through a session.

        Args:
            session: its time-outs count.
            context: of https, as the command line says; None: the system's authorities.
            named: admin ports that a person or a file named.
        """
        self._session = session
        self._context = context
        self._named = frozenset(named)

    def _headers(self, url: str) -> dict[str, str]:
        """Prove the token where it may be known; anybody may have written the address of a registration."""
        host = urlsplit(url).hostname or ""
        proven = self._context is not None and url.startswith("https:")
        return token_headers() if url in self._named or proven or host in _LOOPBACK else {}

    async def get(self, url: str, path: str, query: Mapping[str, object] | None = None) -> Page:
        """Send one GET.

        Args:
            url: of the admin port.
            path: as /v1/status.
            query: {name: value}, without those that are None.

        Raises:
            UnreachableError: nothing came in time, or too much.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{url}{path}" + (f"?{urlencode(given, quote_via=quote)}" if given else "")
        begun_s = time.time()
        try:
            async with self._session.get(
                target, headers=self._headers(url), ssl=self._context or True, allow_redirects=False
            ) as response:
                body = await _bounded(response)
                date = response.headers.get("Date", "")
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise UnreachableError(_reason(error), "see whether it runs") from error
        return Page(status, body, _clock_ahead_s(date, begun_s, time.time()))

    async def get_object(
        self, url: str, path: str, query: Mapping[str, object] | None = None
    ) -> tuple[dict[str, Any], Page]:
        """Send one GET and return the object that came, with the page that it came in.

        Raises:
            UnreachableError: no such answer came; its message says what did. RefusedError: it may not be had.
        """
        page = await self.get(url, path, query)
        try:
            answer = json.loads(page.body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise UnreachableError(f"what came is not of an admin port (HTTP {page.status})")
        if page.status != 200:
            told = printable(f"HTTP {page.status}: {answer.get('error')}; {answer.get('remedy')}")
            raise RefusedError(told) if page.status in (401, 403) else UnreachableError(told)
        return cast("dict[str, Any]", answer), page

    async def items(self, url: str, path: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of all pages.

        Raises:
            UnreachableError: a page did not come.
        """
        after: object = None
        while True:
            answer, _ = await self.get_object(url, path, {"limit": _PAGE_ITEMS, "after": after})
            for item in answer.get("items", ()):
                yield item
            after = answer.get("next_after")
            if after is None:
                return

    async def metrics(self, url: str) -> Metrics | None:
        """Return the metrics of a process; None where it shows none."""
        try:
            page = await self.get(url, "/metrics")
            return Metrics(page.body.decode()) if page.status == 200 else None
        except (UnreachableError, ValueError):
            return None


def _reason(error: Exception) -> str:
    """Say why no answer came."""
    if isinstance(error, TimeoutError):
        return f"nothing came within {ANSWER_TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno)
    return printable(str(error) or type(error).__name__)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes came")
        parts.append(part)
    return b"".join(parts)


def _clock_ahead_s(date: str, begun_s: float, ended_s: float) -> float | None:
    """Compare an HTTP date, which is cut to whole seconds, with the middle of the time that it took."""
    if ended_s - begun_s > CLOCK_ROUND_S_MAX:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() + 0.5 - (begun_s + ended_s) / 2
    except ValueError:
        return None


@asynccontextmanager
async def asking(named: Collection[str]) -> AsyncIterator[AdminAsker]:
    """Yield what asks admin ports, by TLS as --ca, --cert and --key say.

    Args:
        named: as AdminAsker has it.
    """
    make = DIALLING.get()
    context = None if make is None else make()
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield AdminAsker(session, context, named)
