"""Bursts of requests that reach the answers which random paths seldom find.

Each makes a node or two of its own beside the stream's root, in a state that lets requests fail in one
certain way, and then sends a few of these requests in any order. What comes of them the oracle decides.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.conformance.differential import access
from tests.conformance.differential.wire import Op, Request

#: how many of the requests of a kind go into one burst
_SENT_MAX: Final = 4
_TTL_MS: Final = 86_400_000
_EVERYTHING: Final = 31
_READ, _DELETE, _ADMIN = 1, 8, 16
_CREATES: Final = {Op.CREATE: 0, Op.CREATE2: 0, Op.CREATE_CONTAINER: 4, Op.CREATE_TTL: 5}
_BAD: Final = "a\x00b"
#: what no request of these operations is: too short. Of a write it would stop ZooKeeper's request pipeline.
_CUT: Final = b"\0\0"
_CAN_BE_CUT: Final = (
    *(Op.EXISTS, Op.GET_DATA, Op.GET_ACL, Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.SYNC, Op.GET_EPHEMERALS),
    *(Op.GET_ALL_CHILDREN_NUMBER, Op.MULTI_READ, Op.ADD_WATCH, Op.REMOVE_WATCHES, Op.CHECK_WATCHES),
    *(Op.SET_WATCHES, Op.SET_WATCHES2),
)

Burst = tuple[tuple[Request, ...], tuple[Request, ...]]


def _world(perms: int) -> access.Acl:
    return ((perms, "world", "anyone"),)


def _create(path: str, acl: access.Acl = access.OPEN, flags: int = 0) -> Request:
    return Request(Op.CREATE, (path, b"r", acl, flags))


def _creates(path: str, acl: access.Acl = access.OPEN) -> tuple[Request, ...]:
    """A create of every kind."""
    plain = ((op, (path, b"", acl, flags)) for op, flags in _CREATES.items())
    return tuple(Request(op, (*args, _TTL_MS) if op == Op.CREATE_TTL else args) for op, args in plain)


def _multi(*parts: Request) -> Request:
    return Request(Op.MULTI, (parts,))


def _check(path: str, version: int = -1) -> Request:
    return Request(Op.CHECK, (path, version))


def _unreadable(name: str, _random: Random) -> Burst:
    """Reads of a node whose list lets nobody read it."""
    closed = _create(name, _world(_EVERYTHING & ~_READ & ~_ADMIN))
    reads = (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2)
    return (closed,), (
        *(Request(op, (name, False)) for op in reads),
        *(Request(op, (name,)) for op in (Op.GET_ACL, Op.GET_ALL_CHILDREN_NUMBER)),
        Request(Op.MULTI_READ, ((Request(Op.GET_DATA, (name, False)),),)),
        _multi(_check(name)),
    )


def _unwritable(name: str, _random: Random) -> Burst:
    """Writes to a node that may only be read."""
    creates = _creates(f"{name}/x")
    return (_create(name, _world(_READ)),), (
        *(*creates, _multi(creates[0]), Request(Op.SET_DATA, (name, b"", -1))),
        Request(Op.SET_ACL, (name, access.OPEN, -1)),
    )


def _undeletable(name: str, _random: Random) -> Burst:
    """Deletions below a node that does not allow them."""
    made = (_create(name, _world(_EVERYTHING & ~_DELETE)), _create(f"{name}/x"))
    deletion = Request(Op.DELETE, (f"{name}/x", -1))
    return made, (deletion, _multi(deletion))


def _childless(name: str, _random: Random) -> Burst:
    """Creates below an ephemeral node."""
    creates = _creates(f"{name}/x")
    return (_create(name, flags=1),), (*creates, _multi(creates[0]))


def _taken(name: str, _random: Random) -> Burst:
    """Creates of a node that is there, and deletions of one that has children."""
    creates, deletion = _creates(name), Request(Op.DELETE, (name, -1))
    return (_create(name), _create(f"{name}/x")), (
        *(*creates, _multi(creates[0]), deletion, _multi(deletion)),
    )


def _wrong_version(name: str, _random: Random) -> Burst:
    """Writes that expect another version."""
    return (_create(name),), (
        *(Request(Op.DELETE, (name, 7)), Request(Op.SET_DATA, (name, b"", 7)), _multi(_check(name, 7))),
        Request(Op.SET_ACL, (name, access.OPEN, 7)),
    )


def _invalid_list(name: str, random: Random) -> Burst:
    """Access lists that are none."""
    creates = _creates(f"{name}/x", random.choice(access.INVALID))
    set_acl = Request(Op.SET_ACL, (name, random.choice(access.INVALID), -1))
    return (_create(name),), (*creates, _multi(creates[0]), set_acl)


def _no_path(name: str, _random: Random) -> Burst:
    """Paths that are none."""
    path = f"{name}/{_BAD}"
    return (_create(name),), (
        *(*_creates(path), Request(Op.DELETE, (path, -1)), Request(Op.SET_DATA, (path, b"", -1))),
        *(Request(Op.EXISTS, (path, False)), Request(Op.EXISTS, (path, True)), _multi(_check(path))),
        Request(Op.SET_ACL, (path, access.OPEN, -1)),
    )


def _watched(name: str, random: Random) -> Burst:
    """Watches of a node and its child, and writes that reach them, or would if their multi did not fail."""
    child, spoiler = f"{name}/x", _check(name, 7)
    change, deletion = Request(Op.SET_DATA, (name, b"w", -1)), Request(Op.DELETE, (child, -1))
    armed = (
        *(Request(op, (path, True)) for op in (Op.GET_DATA, Op.GET_CHILDREN) for path in (name, child)),
        Request(Op.EXISTS, (f"{name}/y", True)),
    )
    return (_create(name), _create(child), *random.sample(armed, random.randint(1, 3))), (
        *(_multi(change, spoiler), _multi(deletion, change, spoiler), _multi(deletion, _create(f"{name}/y"))),
        *(change, deletion, _create(f"{name}/y")),
    )


def _cut(_name: str, _random: Random) -> Burst:
    """Requests that end too early."""
    return (), tuple(Request(op, raw=_CUT) for op in _CAN_BE_CUT)


def _reconfig(_name: str, random: Random) -> Burst:
    """Changes of members that are refused: nobody here is the superuser."""
    joining = random.choice(("server.9", "server.x=127.0.0.1:1:2", "server.9=127.0.0.1", "nonsense"))
    return (), (
        Request(Op.RECONFIG, (None, "99", None, 7)),
        Request(Op.RECONFIG, (None, "x", None, -1)),
        Request(Op.RECONFIG, (joining, None, None, -1)),
        Request(Op.RECONFIG, (None, None, joining, -1)),
        Request(Op.RECONFIG, (None, "99", None, -1)),
    )


#: {what makes a burst: how often}
_KINDS: Final[dict[Callable[[str, Random], Burst], int]] = {
    _unreadable: 3,
    _unwritable: 2,
    _undeletable: 1,
    _childless: 2,
    _taken: 2,
    _wrong_version: 1,
    _invalid_list: 2,
    _no_path: 3,
    _cut: 5,
    _reconfig: 2,
    _watched: 5,
}


def rare(random: Random, name: str, *, members: bool) -> tuple[Request, ...]:
    """Choose a burst.

    Args:
        random: what chooses.
        name: a path that the stream uses for nothing else.
        members: whether changes of members may be asked for: by a session that is no superuser, where a
            transaction more does not count (a refused change takes one in ZooKeeper).
    """
    weights = [weight if members or kind is not _reconfig else 0 for kind, weight in _KINDS.items()]
    kind = random.choices(list(_KINDS), weights)[0]
    made, fitting = kind(name, random)
    chosen = random.sample(fitting, random.randint(1, min(_SENT_MAX, len(fitting))))
    # a change of access comes last: ZooKeeper may judge a write behind it by the old list or the new one
    chosen.sort(key=lambda request: request.op == Op.SET_ACL)
    return (*made, *chosen)
