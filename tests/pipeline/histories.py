"""Histories of a made-up control plane, as rows of the change log: a seeded player of brokers and controller.

It keeps every rule that `pipeline.jobs.invariants` judges, so that a test can break one on purpose.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from controller.core.reassignment import move_of, with_targets, without_moves
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import ControllerRecord, GenerationRecord, PartitionStateRecord, TopicRecord

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Change(NamedTuple):
    """One row, in the order of the source's columns."""

    zxid: int
    txn_index: int
    txn_size: int
    term: int
    ts: datetime
    op: str
    path: str
    before: bytes | None
    after: bytes | None
    version: int
    session_id: int
    controller_epoch: int
    cluster_id: str


@dataclass
class Player:
    """A cluster that is played by dice."""

    seed: int
    brokers: int = 5
    rows: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.nodes: dict[str, tuple[bytes | None, int]] = {}
        self.zxid, self.term, self.now, self.epoch = 0, 1, BEGIN, 0
        self.next_session = 100
        self.sessions: dict[int, int] = {}
        self.controller: int | None = None
        self.topics: dict[str, TopicRecord] = {}
        self.states: dict[PartitionKey, PartitionStateRecord] = {}
        self.unclean: set[str] = set()
        #: brokers that went since the controller acted last; some are back
        self.unseen: set[int] = set()
        self.commit([(paths.CONTROLLER_EPOCH, b"0")], 0)

    def commit(self, writes: list[tuple[str, bytes | None]], session_id: int) -> None:
        """Commit a transaction: each path gets a value, or goes (None)."""
        self.zxid += self.dice.choice((1, 1, 1, 3))
        self.now += timedelta(milliseconds=self.dice.choice((0, 1, 7, 40, 900)))
        changes: list[tuple[str, str, bytes | None, bytes | None, int]] = []
        for path, after in writes:
            before, version = self.nodes.get(path, (None, -1))
            op = "d" if after is None else "u" if path in self.nodes else "c"
            if after is None:
                del self.nodes[path]
            else:
                self.nodes[path] = (after, version + 1)
            changes.append((op, path, before, after, version if op == "d" else version + 1))
            if path == paths.CONTROLLER_EPOCH and after is not None:
                self.epoch = int(after)
        for at, (op, path, before, after, version) in enumerate(changes):
            self.rows.append(
                Change(
                    *(self.zxid, at, len(changes), self.term, self.now, op, path, before, after, version),
                    *(session_id, self.epoch, "cluster"),
                )
            )

    def play(self, steps: int) -> list[Change]:
        """Begin, take so many steps, and return all rows."""
        self.begin()
        self.move(steps)
        return self.rows

    def begin(self) -> None:
        """All brokers register, one becomes the controller, and there are two topics."""
        for broker_id in range(1, self.brokers + 1):
            self.start(broker_id)
        self.react()
        for name in ("orders", "pay-ments"):
            self.create_topic(name)

    def move(self, steps: int) -> None:
        """Take so many steps."""
        moves = (
            *((self.fail, 3), (self.start, 4), (self.react, 9), (self.shrink, 4), (self.grow, 6)),
            *((self.delete_topic, 1), (self.create_topic, 2), (self.reassign, 2), (self.cancel, 1)),
            *((self.finish, 4), (self.prefer, 2), (self.new_term, 1), (self.bounce, 2), (self.noise, 2)),
        )
        kinds, weights = zip(*moves, strict=True)
        for move in self.dice.choices(kinds, weights, k=steps):
            move()

    def start(self, broker_id: int | None = None) -> None:
        """A broker registers."""
        absent = [each for each in range(1, self.brokers + 1) if each not in self.sessions]
        if broker_id is None and not absent:
            return
        chosen = self.dice.choice(absent) if broker_id is None else broker_id
        self.next_session += 1
        self.sessions[chosen] = self.next_session
        generation = GenerationRecord(f"{chosen:032x}").encode()
        writes = [(paths.broker_id_path(chosen), b"{}"), (paths.broker_generation_path(chosen), generation)]
        self.commit(list(writes), self.next_session)

    def fail(self) -> int | None:
        """A broker's session ends, and with it all that it held."""
        if not self.sessions:
            return None
        broker_id = self.dice.choice(sorted(self.sessions))
        session_id = self.sessions.pop(broker_id)
        self.unseen.add(broker_id)
        gone: list[tuple[str, bytes | None]] = [(paths.broker_id_path(broker_id), None)]
        if self.controller == broker_id:
            self.controller = None
            gone.append((paths.CONTROLLER, None))
        self.commit(gone, session_id)
        return broker_id

    def bounce(self) -> None:
        """A broker comes back before the controller has acted."""
        if (broker_id := self.fail()) is not None:
            self.start(broker_id)

    def react(self) -> None:
        """A controller is elected where there is none, and decides about every partition."""
        if not self.sessions:
            return
        if self.controller is None:
            self.controller = self.dice.choice(sorted(self.sessions))
            record = ControllerRecord(self.controller, 0).encode()
            epoch: list[tuple[str, bytes | None]] = [(paths.CONTROLLER, record)]
            self.commit([*epoch, (paths.CONTROLLER_EPOCH, b"%d" % (self.epoch + 1))], self._session())
        for key in sorted(self.states):
            self._decide(key)
        self.unseen.clear()

    def _session(self) -> int:
        assert self.controller is not None
        return self.sessions[self.controller]

    def _decide(self, key: PartitionKey) -> None:
        state = self.states[key]
        alive = tuple(each for each in state.isr if each in self.sessions)
        replicas = self.topics[key.topic].partitions[key.partition]
        recovery, isr, leader = 0, alive, state.leader
        if alive:
            leader = state.leader if state.leader in alive else alive[0]
        elif key.topic in self.unclean and (others := [each for each in replicas if each in self.sessions]):
            leader, isr, recovery = others[0], (others[0],), 1
        else:
            leader, isr = -1, state.isr
        if (leader, isr) != (state.leader, state.isr) or leader in self.unseen:
            self._write([key], leader, isr, recovery)

    def _write(self, keys: Iterable[PartitionKey], leader: int, isr: tuple[int, ...], recovery: int) -> None:
        writes: list[tuple[str, bytes | None]] = []
        for key in keys:
            epoch = LeaderEpoch(self.states[key].leader_epoch + 1)
            state = PartitionStateRecord(ControllerEpoch(self.epoch), leader, epoch, isr, recovery)
            self.states[key] = state
            writes.append((paths.partition_state_path(key), state.encode()))
        self.commit(writes, self._session())

    def shrink(self) -> None:
        """A leader takes a follower out of its ISR."""
        self._own_write(lambda state, _: [each for each in state.isr if each != state.leader][-1:], -1)

    def grow(self) -> None:
        """A leader takes a follower into its ISR."""
        self._own_write(
            lambda state, replicas: [
                each for each in replicas if each in self.sessions and each not in state.isr
            ],
            1,
        )

    def _own_write(self, choose: Any, sign: int) -> None:
        led = [key for key, state in sorted(self.states.items()) if self._leads(state)]
        if not led:
            return
        key = self.dice.choice(led)
        state = self.states[key]
        chosen = choose(state, self.topics[key.topic].partitions[key.partition])
        if chosen:
            rest = tuple(each for each in state.isr if each != chosen[0])
            self.states[key] = replace(state, isr=(*rest, chosen[0]) if sign > 0 else rest)
            write = (paths.partition_state_path(key), self.states[key].encode())
            self.commit([write], self.sessions[state.leader])

    def _leads(self, state: PartitionStateRecord) -> bool:
        return state.leader in self.sessions and state.leader not in self.unseen

    def create_topic(self, name: str | None = None) -> None:
        """A topic is created, perhaps one that there was before."""
        name = name or self.dice.choice(["orders", "audit", "logs"])
        if name in self.topics or self.controller is None or len(self.sessions) < 2:
            return
        everyone = sorted(self.sessions)
        count = self.dice.choice((1, 3))
        self.create(
            name, {at: tuple(self.dice.sample(everyone, min(3, len(everyone)))) for at in range(count)}
        )

    def create(self, name: str, partitions: dict[int, tuple[int, ...]]) -> None:
        """A topic is created with these replicas."""
        self.topics[name] = TopicRecord(uuid.UUID(int=self.dice.getrandbits(128)), partitions)
        if self.dice.random() < 0.4:
            self.unclean.add(name)
        writes: list[tuple[str, bytes | None]] = [(paths.topic_path(name), self.topics[name].encode())]
        for at, replicas in partitions.items():
            key = PartitionKey(name, at)
            state = PartitionStateRecord(ControllerEpoch(self.epoch), replicas[0], LeaderEpoch(0), replicas)
            self.states[key] = state
            writes.append((paths.partition_state_path(key), state.encode()))
        self.commit(writes, self._session())

    def delete_topic(self) -> None:
        """A topic is deleted."""
        if self.controller is not None and len(self.topics) > 1:
            name = self.dice.choice(sorted(self.topics))
            keys = [key for key in self.states if key.topic == name]
            gone: list[tuple[str, bytes | None]] = [(paths.partition_state_path(key), None) for key in keys]
            self.commit([*gone, (paths.topic_path(name), None)], self._session())
            del self.topics[name]
            self.unclean.discard(name)
            for key in keys:
                del self.states[key]

    def reassign(self) -> None:
        """A reassignment begins."""
        key = self._any_partition()
        if key is not None and len(self.sessions) >= 2:
            target = tuple(self.dice.sample(sorted(self.sessions), 2))
            self._set_topic(key.topic, with_targets(self.topics[key.topic], {key.partition: target}))

    def cancel(self) -> None:
        """A reassignment is taken back."""
        key = self._any_partition()
        if key is not None and (move := move_of(self.topics[key.topic], key.partition)) is not None:
            self._set_topic(key.topic, with_targets(self.topics[key.topic], {key.partition: move.origin}))

    def finish(self) -> None:
        """Reassignments whose target lives come to their end."""
        for key in sorted(self.states):
            move = move_of(self.topics[key.topic], key.partition)
            isr = () if move is None else tuple(each for each in move.target if each in self.sessions)
            leader = self.states[key].leader
            if self.controller is not None and move is not None and isr and leader in self.sessions:
                self._write([key], leader, tuple(dict.fromkeys((*self.states[key].isr, *isr))), 0)
                self._write([key], leader if leader in isr else isr[0], isr, 0)
                self._set_topic(key.topic, without_moves(self.topics[key.topic], [key.partition]))

    def _set_topic(self, name: str, record: TopicRecord) -> None:
        if self.controller is not None:
            self.topics[name] = record
            self.commit([(paths.topic_path(name), record.encode())], self._session())

    def _any_partition(self) -> PartitionKey | None:
        return self.dice.choice(sorted(self.states)) if self.states else None

    def prefer(self) -> None:
        """A preferred leader takes over."""
        key = self._any_partition()
        if key is None or self.controller is None:
            return
        first = self.topics[key.topic].partitions[key.partition][0]
        if first in self.sessions and first in self.states[key].isr:
            self._write([key], first, self.states[key].isr, 0)

    def new_term(self) -> None:
        """The quorum's leader changes; its clock may be behind."""
        self.term += 1
        self.now -= timedelta(milliseconds=self.dice.choice((0, 5, 3000)))

    def noise(self) -> None:
        """Something that is no concern of the control plane."""
        self.commit([("/consumers/groups/g", b"%d" % self.dice.randrange(100)), ("/app", b"\xff\x00")], 5)


def beginning_with_tree(rows: Sequence[Change], cut: int) -> list[Change]:
    """Return the rows from one on, and before them the tree as the source reads it, as rows of op r."""
    tree: dict[str, Change] = {}
    for row in rows[:cut]:
        tree.pop(row.path, None)
        if row.after is not None:
            tree[row.path] = row
    of_all = rows[cut - 1]
    return [
        *(
            row._replace(
                zxid=of_all.zxid,
                txn_index=at,
                term=of_all.term,
                ts=of_all.ts,
                op="r",
                before=None,
                controller_epoch=of_all.controller_epoch,
            )
            for at, row in enumerate(tree.values())
        ),
        *rows[cut:],
    ]


def history(seed: int, steps: int = 150) -> list[Change]:
    """Return the rows of a played history."""
    return Player(seed).play(steps)
