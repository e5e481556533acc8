"""Reads the change log over HTTP from whichever node has it.

Decides which node is asked next, how long a history that has not come yet is waited for, and when a history
is lost: only when every node has said so. All nodes give the same bytes for a zxid, so a read goes on with
another node where the one before it ended. Blocking; a connection a question. Keeps
no state between two reads.

Source: docs/reference/http.md, "The change log".
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgpack

from pipeline.dialling import context_of
from pipeline.errors import InputError
from quorum.config.tls import TlsSection
from quorum.errors import UnreachableError, printable

#: of one page; what a node gives at most
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
#: of one answer; a transaction may be larger than a page
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
#: znodes of one page of the tree
TREE_PAGE_NODES: Final = 10_000
CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 60.0
#: how long no node may have anything new before a read fails
PATIENCE_S: Final = 60.0
#: between two rounds in which no node had anything new
PAUSE_S: Final = 0.2
_PAST_THE_END: Final = (1 << 63) - 1

Record = Mapping[str, Any]


class HistoryLostError(InputError):
    """No node retains a transaction any more.

    Attributes:
        first_zxid: the first that one of them retains.
    """

    def __init__(self, zxid: int, first_zxid: int) -> None:
        super().__init__(
            f"history is lost: zxid {zxid} is gone from every node, the first that is left is {first_zxid}",
            f"give startingZxid = {first_zxid}, or failOnDataLoss = false to go on behind the gap",
        )
        self.first_zxid = first_zxid


class TreeLostError(InputError):
    """No node has the tree with which a query begins any more.

    Attributes:
        first_zxid: the first that one of them retains.
    """

    def __init__(self, zxid: int, first_zxid: int) -> None:
        super().__init__(
            f"the tree at zxid {zxid}, with which the query begins, is gone: all nodes' history begins later",
            f"give startingZxid = {first_zxid}, and a new checkpoint if it is a stream",
        )
        self.first_zxid = first_zxid


@dataclass(frozen=True)
class ChangelogAnswer:
    """What a node answered.

    Attributes:
        status: of HTTP: 200, or another one with a problem as its body.
        body: its bytes.
        last_zxid: of the node; -1 where it does not say.
    """

    status: int
    body: bytes
    last_zxid: int

    def problem(self) -> dict[str, Any]:
        """Return the fields of a problem; none where there is none, or the body is not a JSON object."""
        if self.status == 200:
            return {}
        try:
            fields = json.loads(self.body)
        except ValueError:
            return {}
        return fields if isinstance(fields, dict) else {}

    def first_retained_zxid(self) -> int:
        """Return where the node's history begins, of an answer to from_zxid=0 or of a 410."""
        return 0 if self.status == 200 else int(self.problem()["first_retained_zxid"])


class Page(NamedTuple):
    """Records that follow on one another.

    Attributes:
        records: at least one.
        size_bytes: as msgpack.
    """

    records: list[Record]
    size_bytes: int


@dataclass(frozen=True)
class Extent:
    """What the nodes retain together.

    Attributes:
        first_zxid: inclusive.
        last_zxid: inclusive; less than `first_zxid` where there is nothing.
    """

    first_zxid: int
    last_zxid: int


class ChangelogClient:
    """Asks the nodes of one quorum."""

    def __init__(
        self,
        nodes: tuple[tuple[str, int], ...],
        token: str,
        tls: TlsSection | None = None,
        *,
        first: int = 0,
    ) -> None:
        """Ask nobody yet.

        Args:
            nodes: (host, port) of the admin ports.
            token: that they ask for; empty: none.
            tls: the files for TLS with them; None: without.
            first: which node is tried first, counted round.
        """
        first %= len(nodes)
        self._nodes = [*nodes[first:], *nodes[:first]]
        self._tls = context_of(tls)
        self._headers = {"Accept": "application/msgpack"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def extent(self) -> Extent:
        """Return what is retained by any node that can be reached."""
        found: list[Extent] = []
        reasons: list[str] = []
        for node in self._nodes:
            try:
                begin = self._ask(node, "/v1/changelog?from_zxid=0&bytes_max=1")
                end = self._ask(node, f"/v1/changelog?from_zxid={_PAST_THE_END}&bytes_max=1")
            except UnreachableError as error:
                reasons.append(error.message)
                continue
            found.append(Extent(begin.first_retained_zxid(), end.last_zxid))
        if not found:
            raise _unreachable(reasons)
        return Extent(min(each.first_zxid for each in found), max(each.last_zxid for each in found))

    def last_zxid(self, patience_s: float = 0) -> int:
        """Return the newest zxid that any node can give.

        Args:
            patience_s: how long nodes may be out of reach, all of them.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return self.extent().last_zxid
            except UnreachableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    def page(self, from_zxid: int, bytes_max: int = PAGE_BYTES_MAX) -> Page:
        """Return the next records from a zxid on, at least one: waits until a node has it."""
        query = f"/v1/changelog?from_zxid={from_zxid}&bytes_max={bytes_max}"
        body = self._from_any(query, from_zxid).body
        unpacker = msgpack.Unpacker(raw=False, max_buffer_size=ANSWER_BYTES_MAX)
        unpacker.feed(body)
        return Page(list(unpacker), len(body))

    def record(self, from_zxid: int) -> Record:
        """Return the first record from a zxid on; errors are those of `page`."""
        return self.page(from_zxid, 1).records[0]

    def record_of_tree(self, as_of_zxid: int) -> Record:
        """Return the record of the transaction behind which `tree` reads; errors are those of `tree`."""
        try:
            return self.record(as_of_zxid)
        except HistoryLostError as error:
            raise TreeLostError(as_of_zxid, error.first_zxid) from error

    def tree(self, as_of_zxid: int) -> Iterator[Record]:
        """Read all znodes as they were behind a transaction, in the order of their paths."""
        after: str | None = ""
        while after is not None:
            query = f"/v1/changelog/tree?as_of_zxid={as_of_zxid}&after={quote(after)}&limit={TREE_PAGE_NODES}"
            try:
                page = json.loads(self._from_any(query, as_of_zxid).body)
            except HistoryLostError as error:
                raise TreeLostError(as_of_zxid, error.first_zxid) from error
            yield from page["items"]
            after = page["next_after"]

    def _from_any(self, query: str, zxid: int) -> ChangelogAnswer:
        """Return the first answer that has a zxid; the node that gave it is tried first from then on."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            gone: list[int] = []
            reasons: list[str] = []
            for node in tuple(self._nodes):
                try:
                    answer = self._ask(node, query)
                except UnreachableError as error:
                    reasons.append(error.message)
                    continue
                if answer.status == 200 and answer.body:
                    self._nodes.remove(node)
                    self._nodes.insert(0, node)
                    return answer
                if answer.status == 410:
                    gone.append(answer.first_retained_zxid())
                else:
                    reasons.append(f"{_url(node)} does not have zxid {zxid} yet")
            if len(gone) == len(self._nodes):
                raise HistoryLostError(zxid, min(gone))
            if time.monotonic() > deadline:
                if gone:
                    reasons.append(f"{len(gone)} nodes have dropped it")
                raise _unreachable(reasons)
            time.sleep(PAUSE_S)

    def _ask(self, node: tuple[str, int], path: str) -> ChangelogAnswer:
        """Ask one node."""
        if self._tls is None:
            connection = http.client.HTTPConnection(*node, timeout=CONNECT_TIMEOUT_S)
        else:
            connection = http.client.HTTPSConnection(*node, timeout=CONNECT_TIMEOUT_S, context=self._tls())
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_TIMEOUT_S)
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
            answer = ChangelogAnswer(
                response.status, body, int(response.headers.get("Quorate-Last-Zxid", -1))
            )
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = printable(str(error) or type(error).__name__)
            raise UnreachableError(f"{_url(node)} did not answer: {reason}", "start it") from error
        finally:
            connection.close()
        # Of the change log, which may have nothing yet, or of the tree.
        page = answer.last_zxid >= 0 or response.headers.get_content_type() == "application/json"
        problem = answer.problem()
        if page if answer.status == 200 else "first_retained_zxid" in problem:
            return answer
        message = f"{_url(node)}: {printable(str(problem.get('error', f'HTTP {answer.status}')))}"
        if answer.status >= 500 or problem.get("retriable"):
            raise UnreachableError(message, "see its /readyz")
        raise InputError(message, printable(str(problem.get("remedy", "name the admin port of a node"))))


def _url(node: tuple[str, int]) -> str:
    host, port = node
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _unreachable(reasons: list[str]) -> UnreachableError:
    return UnreachableError(
        f"no node gave the change log: {'; '.join(reasons)}",
        "name running nodes with quorate.admin = http://host:port,…",
    )


def read_records(
    client: ChangelogClient, from_zxid: int, to_zxid: int, *, fail_on_data_loss: bool
) -> Iterator[Record]:
    """Read the transactions of a range, both ends inclusive.

    Args:
        client: of the quorum.
        from_zxid: the first.
        to_zxid: the last; it was committed before.
        fail_on_data_loss: whether a gap ends the read; else the read goes on behind it.
    """
    while from_zxid <= to_zxid:
        try:
            page = client.page(from_zxid)
        except HistoryLostError as error:
            if fail_on_data_loss:
                raise
            from_zxid = max(error.first_zxid, from_zxid + 1)
            continue
        for record in page.records:
            if record["zxid"] > to_zxid:
                return
            yield record
        from_zxid = page.records[-1]["zxid"] + 1
