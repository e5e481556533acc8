"""Looks how often the quorum elected a leader: by the terms of committed transactions in the change log.

Elections are no records, but each transaction names the term in which it was committed. The last one that is
at least an hour old is found by halving, so a long history costs some twenty short requests. No state.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

from quorum.doctor.asking import AdminAsker
from quorum.errors import UnreachableError
from quorum.health.seen import QuorumSeen, TermRise

#: for all of it
TIMEOUT_S: Final = 5.0
#: how old the transaction is that the present is compared with, at least, if there is one
SPAN_S: Final = 3600.0
_GONE: Final = 410


async def look_at_terms(asker: AdminAsker, quorum: QuorumSeen) -> TermRise | str:
    """Return how the term rose of late, or why that is not known."""
    known = [node for node in quorum.nodes if node.term is not None and node.zxid is not None]
    if not known:
        return "no node says its term"
    node = known[0]
    term = max(each.term or 0 for each in known)
    now_s = time.time()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            row = await _last_before(asker, node.process.url, node.zxid or 0, (now_s - SPAN_S) * 1000)
    except TimeoutError:
        return f"the change log was not read within {TIMEOUT_S:g} s"
    except UnreachableError as error:
        return f"the change log cannot be read: {error.message}"
    if row is None:
        return "nothing was written yet, so no transaction tells its term"
    return TermRise(row["term"], max(term, row["term"]), max(0.0, now_s - row["ts"] / 1000))


async def _last_before(
    asker: AdminAsker, url: str, last_zxid: int, before_ms: float
) -> dict[str, Any] | None:
    """Return the last record from before a time, or the first one that is retained."""
    # The founding, zxid 0, has no time.
    first = found = await _row(asker, url, 1)
    if first is None or first["ts"] > before_ms:
        return first
    low, high = first["zxid"], last_zxid
    while low < high:
        middle = (low + high + 1) // 2
        row = await _row(asker, url, middle)
        if row is not None and row["ts"] <= before_ms:
            found, low = row, row["zxid"]
        else:
            high = middle - 1
    return found


async def _row(asker: AdminAsker, url: str, zxid: int) -> dict[str, Any] | None:
    """Return the first record from a zxid on that is retained; None: there is none."""
    page = await asker.get(url, "/v1/changelog", {"from_zxid": zxid, "bytes_max": 1})
    try:
        if page.status == _GONE:
            zxid = json.loads(page.body)["first_retained_zxid"]
            page = await asker.get(url, "/v1/changelog", {"from_zxid": zxid, "bytes_max": 1})
        if page.status != 200:
            raise UnreachableError(f"HTTP {page.status}")
        first = page.body.partition(b"\n")[0]
        row = json.loads(first) if first else None
        if row is None:
            return None
        return {name: int(row[name]) for name in ("zxid", "term", "ts")}
    except (ValueError, TypeError, KeyError) as error:
        raise UnreachableError("what came is no change log") from error
