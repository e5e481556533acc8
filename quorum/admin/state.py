"""What a node's endpoints read: its state machine, and pages of what is long.

Reads are those of a client that proved nothing unless they say more, at the node's applied zxid. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.endpoint import Answer
from quorum.admin.reading import Says
from quorum.client import Stat
from quorum.core.machine import StateMachine
from quorum.core.queries import get_children, get_data
from quorum.wire.jute import JuteReader

#: returns the state of now: a snapshot that is installed replaces it
MACHINE: Final = web.AppKey[Callable[[], StateMachine]]("machine")
Limit: TypeAlias = Annotated[int, Says("items of a page", 1, 1000)]
AfterId: TypeAlias = Annotated[int, Says("items after this one; next_after of the page before", -1)]
AfterName: TypeAlias = Annotated[str, Says("items after this one; next_after of the page before")]
Prefix: TypeAlias = Annotated[str, Says("names that begin so", most=300)]


class PageById(NamedTuple):
    """Which page is wanted, by number."""

    limit: Limit = 100
    after: AfterId = -1


class PageByName(NamedTuple):
    """Which page is wanted, by name."""

    limit: Limit = 100
    after: AfterName = ""


class PageByPrefix(NamedTuple):
    """Which page is wanted of the names that begin so."""

    limit: Limit = 100
    after: AfterName = ""
    prefix: Prefix = ""


def read_znode(
    machine: StateMachine, path: str, identities: object = None
) -> tuple[bytes | None, Stat, Sequence[str]] | int:
    """Return data, Stat and children's names of a node, or ZooKeeper's code of an error.

    Args:
        machine: the state. path: of the node. identities: of the caller, [[scheme, id], …]; None: nobody.
    """
    found = get_data(machine, path, identities)
    if isinstance(found, int):
        return found
    names = get_children(machine, path, identities)
    assert not isinstance(names, int)
    data, stat = found
    return data, JuteReader(stat, 0, len(stat), "Stat").stat("stat"), names


def names_below(machine: StateMachine, path: str) -> list[str]:
    """Return the names of a node's children in order; none where it is not there or may not be read."""
    found = read_znode(machine, path)
    return [] if isinstance(found, int) else sorted(found[2])


def page(items: Sequence[Answer], key: str, limit: int) -> Answer:
    """Return a page.

    Args:
        items: one more than `limit`, if there are so many.
        key: the field whose value the next page comes after.
        limit: items of a page.
    """
    kept = list(items[:limit])
    return {"items": kept, "next_after": kept[-1][key] if len(items) > limit else None}
