"""What another package adds to the console: rows of the overview, endpoints, actions, and what changes mean.

The console itself knows the quorum alone. The value of an entry point in the group
`quorate.console` makes an extension. No state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple, Protocol, cast

from aiohttp import web

from quorum.console.upstream import Upstream
from quorum.health.seen import QuorumSeen

ENTRY_POINT_GROUP: Final = "quorate.console"


class Rows(NamedTuple):
    """What an extension adds to the overview.

    Attributes:
        brokers: one object each, with id and status.
        controller, coordinator: ids of the brokers that are it.
        topics, partitions: how many there are; None: it is not known, and so below.
        offline, under_replicated, not_preferred: how many partitions are.
        rates: of all topics together: records and bytes in, records out, a second.
        busiest: some topics with the same, those with most first.
    """

    brokers: tuple[Mapping[str, object], ...] = ()
    controller: int | None = None
    coordinator: int | None = None
    topics: int | None = None
    partitions: int | None = None
    offline: int | None = None
    under_replicated: int | None = None
    not_preferred: int | None = None
    rates: Mapping[str, float] | None = None
    busiest: tuple[Mapping[str, object], ...] = ()


class Lists(NamedTuple):
    """What an extension lists where there are no pages (`quorate top`), what needs attention first.

    Attributes:
        topics: one object each, with name, status, lag.
        groups: one object each, with name, status, lag.
        problem: why something of it is not known, else None.
    """

    topics: tuple[Mapping[str, object], ...] = ()
    groups: tuple[Mapping[str, object], ...] = ()
    problem: str | None = None


class PageCall(NamedTuple):
    """The request of an action.

    Attributes:
        upstream: what asks the nodes.
        authorization: header of the browser's request, to pass on.
        app: the console's application.
    """

    upstream: Upstream
    authorization: str | None
    app: web.Application


class PageAction(NamedTuple):
    """Something that a page may change.

    Attributes:
        name: as in POST /api/actions/NAME.
        fields: the NamedTuple that its body is read as.
        preview: says what would be done, and changes nothing.
        carry_out: does it.
    """

    name: str
    fields: Any
    preview: Callable[[PageCall, Any], Awaitable[Mapping[str, object]]]
    carry_out: Callable[[PageCall, Any], Awaitable[Mapping[str, object]]]


class Extension(Protocol):
    """What the value of an entry point, called as in `extensions`, returns."""

    actions: tuple[PageAction, ...]

    def add_routes(self, app: web.Application) -> None:
        """Add endpoints below /api."""

    async def close(self) -> None:
        """End what it holds open."""

    async def rows(self, upstream: Upstream, quorum: QuorumSeen, /) -> Rows:
        """Look at what runs on top of the quorum."""

    async def lists(self, upstream: Upstream, patience_s: float, /) -> Lists:
        """List all of what runs on top of the quorum.

        Raises:
            UnreachableError, NodeRefusalError: no node tells it.
        """

    async def past_rows(self, call: PageCall, as_of: int, /) -> Rows:
        """Read what ran on top of the quorum after a transaction."""

    def concerns(self, path: str, /) -> bool:
        """Whether a change of this znode may change the rows or the findings."""

    def meaning(
        self, op: str, path: str, before: bytes | None, after: bytes | None, /
    ) -> Iterable[tuple[str, str, str]]:
        """Say what a change means for the timeline: (kind, subject, text)."""


def extensions(bootstrap: str | None, *, records: bool) -> list[Extension]:
    """Make those that are installed.

    Args:
        bootstrap: brokers that were named, "host:port,…"; None: those that are registered.
        records: whether pages may read records.
    """
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return [cast("Extension", entry.load()(bootstrap, records=records)) for entry in found]
