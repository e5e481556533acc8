"""Seeded streams: random steps over three sessions on three nodes.

A seed always gives the same stream. Each `_…` method of `Chooser` returns one step or one request; how likely
each is stands in the tables at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from random import Random
from typing import Any, Final

from tests.conformance.differential import access, odd, rare
from tests.conformance.differential.idea import ROOT, Idea
from tests.conformance.differential.steps import (
    FIRST,
    SEEN,
    Greet,
    Leave,
    Pending,
    Quiet,
    Reconnect,
    Send,
    Step,
    Stream,
)
from tests.conformance.differential.wire import Op, Request

SESSIONS: Final = 3
_DAY_MS: Final = 86_400_000
_READS: Final = (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2)
_FLAGS: Final = (0, 0, 0, 1, 1, 2, 2, 3)
#: ("~" is the stream's root) what is no path, or none of a node
BAD_PATHS: Final = (
    "",
    "a",
    "~/",
    "~//a",
    "~/a//b",
    "~/./a",
    "~/../a",
    "~/a/..",
    "~/a\x00b",
    "~/a\x01",
    "~/\ud7ff\ue000",
)
_CREATES: Final = {Op.CREATE: 5, Op.CREATE2: 4, Op.CREATE_CONTAINER: 2, Op.CREATE_TTL: 3}
_FLAGS_OF: Final = {Op.CREATE: _FLAGS, Op.CREATE2: _FLAGS, Op.CREATE_CONTAINER: (4,), Op.CREATE_TTL: (5, 6)}
_BAD_TTLS: Final = (0, -1, -(2**63), 2**40, 2**62)


class Chooser:
    """Chooses the steps of one stream."""

    def __init__(self, random: Random, *, dense: bool) -> None:
        self._random = random
        self._idea = Idea(random)
        self._dense = dense
        self._session = 0
        self._markers = 0
        self._bursts = 0
        #: sessions that may be the superuser's
        self._super: set[int] = set()

    def step(self) -> Step:
        """Choose the next step."""
        self._session = self._random.randrange(SESSIONS)
        table = _DENSE_STEPS if self._dense else _STEPS
        return self._pick(table)(self)

    def _pick(self, table: dict[Callable[[Chooser], Step], int]) -> Callable[[Chooser], Step]:
        return self._random.choices(list(table), list(table.values()))[0]

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # -- steps --

    def single(self) -> Step:
        return Send(self._session, (self.request(),))

    def burst(self) -> Step:
        # a change of access comes last: ZooKeeper may judge a write behind it by the old list or the new one
        requests = [self.request() for _ in range(self._random.randint(2, 6))]
        changes = [request for request in requests if request.op == Op.SET_ACL]
        others = [request for request in requests if request.op != Op.SET_ACL]
        return Send(self._session, (*others, *changes[:1]))

    def read_back(self) -> Step:
        path = self._idea.any()
        return Send(
            self._session, tuple(Request(op, (path, False)) for op in (Op.GET_DATA, Op.GET_CHILDREN2))
        )

    def rare(self) -> Step:
        self._bursts += 1
        members = not self._dense and self._session not in self._super
        return Send(self._session, rare.rare(self._random, f"~.n{self._bursts}", members=members))

    def quiet(self) -> Step:
        return Quiet()

    def reconnect(self) -> Step:
        behind: tuple[Request, ...] = ()
        self._idea.unwatched(self._session)
        if self._chance(0.75):
            behind = (self.set_watches(),)
            if self._chance(0.3):
                behind += (self.write(),)
        return Reconnect(self._session, self._random.randrange(3), behind)

    def pending(self) -> Step:
        self._markers += 1
        self._idea.unwatched(self._session)
        settled = self._dense or self._chance(0.5)
        requests = tuple(self.write() for _ in range(self._random.randint(1, 4))) if settled else ()
        marker = f"~.p{self._markers}"
        return Pending(self._session, self._random.randrange(3), marker, requests, settled)

    def leave(self) -> Step:
        self._idea.session_closed(self._session)
        behind = (
            (Request(Op.CREATE, ("~/behind", b"", access.OPEN, 0)),)
            if not self._dense and self._chance(0.3)
            else ()
        )
        return Leave(self._session, behind)

    def auth(self) -> Step:
        scheme, credentials, fine = self._random.choice(access.CREDENTIALS)
        request = Request(Op.AUTH, (0, scheme, credentials))
        if credentials == access.SUPER.encode():
            self._super.add(self._session)
        if fine:
            return Send(self._session, (request,))
        return odd.broken_request(self._session, "auth", request)

    def breaks(self) -> Step:
        return odd.broken(self._random, self._session)

    def greet(self) -> Step:
        return Greet(self._session, self._random.choice(odd.HANDSHAKES), self._random.randrange(3))

    # -- requests --

    def request(self) -> Request:
        """Choose a request that leaves the connection open."""
        choice: Callable[[Chooser], Request] = self._random.choices(
            list(_REQUESTS), list(_REQUESTS.values())
        )[0]
        return choice(self)

    def write(self) -> Request:
        return self._random.choice((self.create, self.delete, self.set_data, self.multi))()

    def _path(self, good: float = 0.6) -> str:
        """A node that is there with some probability; else anything."""
        if self._chance(good):
            return self._idea.there()
        if self._chance(0.12):
            return self._random.choice(BAD_PATHS)
        if self._chance(0.3):
            return self._idea.restricted()
        return self._idea.any()

    def _new_path(self) -> str:
        pick = self._random.random()
        if pick < 0.7:
            return self._idea.missing()
        if pick < 0.78:
            return self._idea.there()
        if pick < 0.85:
            return f"{self._idea.ephemeral()}/{self._random.choice('abc')}"
        if pick < 0.9:
            return self._idea.orphan()
        if pick < 0.96:
            return f"{self._idea.restricted()}/{self._random.choice('abc')}"
        return self._random.choice(BAD_PATHS)

    def _acl(self) -> tuple[access.Acl, bool | None]:
        """An access list, and whether it keeps somebody out; None if it is not valid."""
        pick = self._random.random()
        if pick < 0.7:
            return access.OPEN, False
        if pick < 0.78:
            return self._random.choice(access.GENEROUS), False
        if pick < 0.9:
            return self._random.choice(access.RESTRICTED), True
        if pick < 0.95:
            return self._random.choice(access.OWN), True
        return self._random.choice(access.INVALID), None

    def _data(self) -> bytes | None:
        return self._random.choice((b"", None, b"x", b"data", bytes(range(40))))

    def create(self) -> Request:
        op = self._random.choices(list(_CREATES), list(_CREATES.values()))[0]
        flags = self._random.choice(_FLAGS_OF[op])
        fine = not self._chance(0.03)
        if not fine:
            flags = self._random.choice((0, 1, 3, 4, 5, 6))
        path, (acl, restricted) = self._new_path(), self._acl()
        sequential = flags in (2, 3, 6)
        if sequential and path.startswith("~/") and self._chance(0.3):
            path = path.rpartition("/")[0] + "/"
        args: tuple[Any, ...] = (path, self._data(), acl, flags)
        if op == Op.CREATE_TTL:
            # out of range, with flags of no TTL node: ZooKeeper 3.9.5 stops on all servers when it applies it
            good_ttl = flags not in (5, 6) or not self._chance(0.15)
            fine = fine and good_ttl
            args += (self._random.randint(1, 5) * _DAY_MS if good_ttl else self._random.choice(_BAD_TTLS),)
        owner = self._session if flags in (1, 3) else None
        if fine and restricted is not None and path.startswith("~/") and path not in BAD_PATHS:
            self._idea.created(path, sequential=sequential, ephemeral_of=owner, restricted=restricted)
        return Request(op, args)

    def delete(self) -> Request:
        pick = self._random.random()
        if pick < 0.55:
            path = self._idea.leaf()
        elif pick < 0.7:
            path = self._idea.full()
        else:
            path = self._random.choice(("/", "/zookeeper")) if self._chance(0.1) else self._path(0.2)
        version = self._version(path)
        if version == -1 and path in self._idea.nodes:
            self._idea.deleted(path)
        return Request(Op.DELETE, (path, version))

    def _version(self, path: str) -> int:
        """A version: any, the right one, one beside it, or nonsense."""
        node = self._idea.nodes.get(path)
        right = node.version if node is not None else 0
        pick = self._random.random()
        if pick < 0.5:
            return -1
        if pick < 0.75:
            return right
        return (
            right + self._random.choice((-1, 1))
            if pick < 0.95
            else self._random.choice((-2, 2**31 - 1, -(2**31)))
        )

    def set_data(self) -> Request:
        path = self._path(0.7)
        version = self._version(path)
        node = self._idea.nodes.get(path)
        if node is not None and version in (-1, node.version):
            node.version += 1
        return Request(Op.SET_DATA, (path, self._data(), version))

    def _read_path(self) -> str:
        # "" is the real root to a read: there other streams have their nodes
        return self._path() or ROOT

    def read(self) -> Request:
        op, path, watch = self._random.choice(_READS), self._read_path(), self._chance(0.6)
        if watch and path in self._idea.nodes:
            self._idea.watched(self._session, path, 2 if op in (Op.EXISTS, Op.GET_DATA) else 1)
        return Request(op, (path, watch))

    def get_acl(self) -> Request:
        return Request(Op.GET_ACL, (self._read_path(),))

    def set_acl(self) -> Request:
        path = self._path(0.7)
        acl, restricted = self._acl()
        node = self._idea.nodes.get(path)
        version = -1
        if node is not None:
            version = self._random.choice((-1, -1, node.aversion, node.aversion, node.aversion + 1))
            if restricted is not None and version in (-1, node.aversion) and path != ROOT:
                node.aversion += 1
                node.restricted = restricted
        if path == ROOT:
            # a root that keeps everybody out would end the story
            acl = self._random.choice((*access.GENEROUS, *access.INVALID))
        return Request(Op.SET_ACL, (path, acl, version))

    def sync(self) -> Request:
        return Request(Op.SYNC, (self._path(),))

    def ping(self) -> Request:
        return Request(Op.PING)

    def check(self) -> Request:
        path = self._path(0.7)
        return Request(Op.CHECK, (path, self._version(path)))

    def multi(self) -> Request:
        count = 0 if self._chance(0.04) else self._random.randint(1, 5)
        before = {path: copy(node) for path, node in self._idea.nodes.items()}
        likely = self._chance(0.8)
        parts = tuple(self._good_part() if likely else self._multi_part() for _ in range(count))
        if self._chance(0.4):
            spoiler = self._random.choice((self._spoiled_check, self._spoiled_delete, self._spoiled_create))()
            at = self._random.randint(0, len(parts))
            parts = (*parts[:at], spoiler, *parts[at:])
            self._idea.nodes = before
        return Request(Op.MULTI, (parts,))

    def _good_part(self) -> Request:
        """A part of a multi that probably succeeds."""
        pick = self._random.random()
        if pick < 0.5:
            path, flags = self._idea.missing(), self._random.choice((0, 0, 1, 2, 3))
            owner = self._session if flags & 1 else None
            self._idea.created(path, sequential=flags > 1, ephemeral_of=owner, restricted=False)
            return Request(self._random.choice((Op.CREATE, Op.CREATE2)), (path, b"m", access.OPEN, flags))
        if pick < 0.7:
            return Request(Op.CHECK, (self._idea.there(), -1))
        if pick < 0.85:
            path = self._idea.there()
            self._idea.nodes[path].version += 1
            return Request(Op.SET_DATA, (path, b"m", -1))
        path = self._idea.leaf()
        self._idea.deleted(path)
        return Request(Op.DELETE, (path, -1))

    def _multi_part(self) -> Request:
        part = self._random.choice((self.create, self.create, self.set_data, self.check, self.delete))()
        if part.op == Op.CHECK:
            return Request(Op.CHECK, (self._idea.there(), -1))
        return part

    def _spoiled_check(self) -> Request:
        pick = self._random.random()
        if pick < 0.1:
            return Request(Op.CHECK, (self._random.choice(BAD_PATHS), -1))
        if pick < 0.3:
            return Request(Op.CHECK, (self._idea.restricted(), -1))
        return Request(Op.CHECK, (self._idea.missing(), -1) if pick < 0.5 else (self._idea.there(), 99))

    def _spoiled_delete(self) -> Request:
        return Request(Op.DELETE, (self._random.choice((self._idea.missing(), self._idea.full())), -1))

    def _spoiled_create(self) -> Request:
        acl = self._random.choice(access.INVALID) if self._chance(0.15) else access.OPEN
        path = self._random.choice(
            (
                self._idea.there(),
                self._idea.orphan(),
                f"{self._idea.ephemeral()}/a",
                f"{self._idea.restricted()}/a",
                self._random.choice(BAD_PATHS),
            )
        )
        return Request(Op.CREATE, (path, b"", acl, 0))

    def multi_read(self) -> Request:
        count = self._random.randint(0, 4)
        ops = (Op.GET_DATA, Op.GET_CHILDREN)
        parts = tuple(Request(self._random.choice(ops), (self._read_path(), False)) for _ in range(count))
        return Request(Op.MULTI_READ, (parts,))

    def add_watch(self) -> Request:
        mode = self._random.choice((0, 1)) if self._chance(0.93) else self._random.choice((-1, 2, 7))
        path = self._idea.any() if self._chance(0.8) else ROOT
        if mode in (0, 1):
            self._idea.watched(self._session, path, 4 + mode)
        return Request(Op.ADD_WATCH, (path, mode))

    def drop_watch(self) -> Request:
        op = self._random.choice((Op.REMOVE_WATCHES, Op.CHECK_WATCHES))
        watch = self._idea.watch_of(self._session)
        path, kind = self._idea.any(), self._random.choice((1, 2, 3, 4, 5))
        if watch is not None and self._chance(0.7):
            path = watch[0]
            kind = watch[1] if self._chance(0.7) else kind
        if self._chance(0.08):
            kind = self._random.choice((0, 6, -1))
        return Request(op, (path, kind))

    def set_watches(self) -> Request:
        kinds = self._random.choice((3, 5))
        op = Op.SET_WATCHES if kinds == 3 else Op.SET_WATCHES2
        zxid = self._random.choice((SEEN, SEEN, FIRST))
        lists = tuple(self._paths() for _ in range(kinds))
        return Request(op, (zxid, *lists))

    def _paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._idea.any() for _ in range(self._random.randint(0, 3))))

    def ephemerals(self) -> Request:
        return Request(Op.GET_EPHEMERALS, (self._random.choice((ROOT, ROOT, self._idea.any())),))

    def count_children(self) -> Request:
        return Request(Op.GET_ALL_CHILDREN_NUMBER, (self._read_path(),))

    def who_am_i(self) -> Request:
        return Request(Op.WHO_AM_I)


_STEPS: Final[dict[Callable[[Chooser], Step], int]] = {
    Chooser.single: 50,
    Chooser.burst: 14,
    Chooser.rare: 6,
    Chooser.read_back: 8,
    Chooser.quiet: 6,
    Chooser.reconnect: 6,
    Chooser.pending: 2,
    Chooser.leave: 2,
    Chooser.auth: 4,
    Chooser.breaks: 3,
    Chooser.greet: 1,
}
#: without what makes the number of transactions a matter of chance
_DENSE_STEPS: Final = {choice: weight for choice, weight in _STEPS.items() if choice is not Chooser.breaks}

_REQUESTS: Final[dict[Callable[[Chooser], Request], int]] = {
    Chooser.create: 22,
    Chooser.delete: 10,
    Chooser.set_data: 10,
    Chooser.read: 18,
    Chooser.multi: 9,
    Chooser.get_acl: 3,
    Chooser.set_acl: 5,
    Chooser.sync: 2,
    Chooser.ping: 1,
    Chooser.multi_read: 3,
    Chooser.add_watch: 4,
    Chooser.drop_watch: 4,
    Chooser.set_watches: 1,
    Chooser.ephemerals: 2,
    Chooser.count_children: 2,
    Chooser.who_am_i: 1,
}


def generate(seed: int, *, dense: bool) -> Stream:
    """Return the stream of a seed.

    Args:
        seed: any number.
        dense: leave out what makes the number of transactions a matter of chance.
    """
    random = Random(f"stream {seed}")
    homes = tuple(random.randrange(3) for _ in range(SESSIONS))
    chooser = Chooser(random, dense=dense)
    steps = tuple(chooser.step() for _ in range(random.randint(20, 40)))
    return Stream(seed, homes, steps)
