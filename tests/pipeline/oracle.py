"""What the jobs over the change log must answer, computed by walking the rows one by one."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.pipeline.histories import Change

Json = dict[str, Any]
Rows = list[tuple[Any, ...]]

_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_BROKER = re.compile(r"/brokers/ids/(\d+)")


def _ms(duration: timedelta) -> int:
    return max(0, round(duration.total_seconds() * 1000))


def _value(image: bytes | None) -> Json:
    value: Json = {} if image is None else json.loads(image)
    return value


@dataclass
class Life:
    """One registration of a broker; what is None lies outside of the history."""

    broker: int
    generation: int | None
    begin: Change | None
    end: Change | None = None


@dataclass
class World:
    """What there is while the rows are walked."""

    rows: Sequence[Change]
    #: {(topic, partition): state}
    states: dict[tuple[str, int], Json] = field(default_factory=dict)
    topics: dict[str, Json] = field(default_factory=dict)
    #: {broker: its life now}; a broker whose first row is its end, or that has none, lives from before
    alive: dict[int, Life] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    named: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for row in self.rows:
            if row.path not in seen:
                seen.add(row.path)
                self._there_before(row)

    def _there_before(self, row: Change) -> None:
        if match := _BROKER.fullmatch(row.path):
            self.named.add(int(match[1]))
            if row.op in ("d", "u"):
                self._open(Life(int(match[1]), None, None))
        elif row.before is not None and (match := _STATE.fullmatch(row.path)):
            self.states[match[1], int(match[2])] = json.loads(row.before)
        elif row.before is not None and (match := _TOPIC.fullmatch(row.path)):
            self.topics[match[1]] = json.loads(row.before)

    def _open(self, life: Life) -> None:
        self.alive[life.broker] = life
        self.lives.append(life)

    def apply(self, row: Change) -> None:
        """Take one row in."""
        if match := _BROKER.fullmatch(row.path):
            if row.op == "d":
                self.alive.pop(int(match[1])).end = row
            elif row.op != "u":
                known = row.op == "c"
                self._open(Life(int(match[1]), row.zxid if known else None, row if known else None))
        elif match := _STATE.fullmatch(row.path):
            key = (match[1], int(match[2]))
            self._put(self.states, key, row)
        elif match := _TOPIC.fullmatch(row.path):
            self._put(self.topics, match[1], row)

    @staticmethod
    def _put(records: dict[Any, Json], key: Any, row: Change) -> None:
        if row.after is None:
            records.pop(key, None)
        else:
            records[key] = json.loads(row.after)

    def life_of(self, broker: int) -> Life | None:
        """Return the life that a leader is in; one that the history knows nothing of lives."""
        if broker not in self.named:
            self.named.add(broker)
            self.alive[broker] = Life(broker, None, None)
        return self.alive.get(broker)


def isr_history(rows: Sequence[Change]) -> Rows:
    """(topic, partition, offline_ms, under_replicated_ms, shrinks, expands, and how it is now)."""
    world, now = World(rows), min(row.ts for row in rows)
    totals: dict[tuple[str, int], list[int]] = {}
    marks: dict[tuple[str, int], tuple[bool, bool, datetime]] = {}

    def judge(key: tuple[str, int], at: datetime, changed: bool) -> None:
        if key in marks and changed:
            was_offline, was_under, since = marks.pop(key)
            totals[key][0] += _ms(at - since) * was_offline
            totals[key][1] += _ms(at - since) * was_under
        state = world.states.get(key)
        if state is not None and key not in marks:
            totals.setdefault(key, [0, 0, 0, 0])
            topic = world.topics.get(key[0], {})
            name = str(key[1])
            full = set(topic.get("partitions", {}).get(name, ())) - set(
                topic.get("adding_replicas", {}).get(name, ())
            )
            marks[key] = (state["leader"] < 0, bool(full - set(state["isr"])), at)

    for key in list(world.states):
        judge(key, now, False)
    for transaction in _transactions(rows):
        before = dict(world.states)
        for row in transaction:
            world.apply(row)
        touched = {(match[1], int(match[2])) for row in transaction if (match := _STATE.fullmatch(row.path))}
        topics = {match[1] for row in transaction if (match := _TOPIC.fullmatch(row.path))}
        touched |= {key for key in (*world.states, *before) if key[0] in topics}
        for key in sorted(touched):
            judge(key, transaction[0].ts, True)
            if key in before and key in world.states:
                was, is_now = set(before[key]["isr"]), set(world.states[key]["isr"])
                totals[key][2] += bool(was - is_now)
                totals[key][3] += bool(is_now - was)
    end = max(row.ts for row in rows)
    now_bad = {key: marks[key][:2] if key in marks else (False, False) for key in totals}
    for key in list(marks):
        judge(key, end, True)
    return sorted((*key, *totals[key], *now_bad[key]) for key in totals)


def _transactions(rows: Sequence[Change]) -> list[list[Change]]:
    found: dict[int, list[Change]] = defaultdict(list)
    for row in rows:
        found[row.zxid].append(row)
    return list(found.values())


def elections(rows: Sequence[Change]) -> Rows:
    """(topic, partition, zxid, epoch, former, leader, its epoch, lost zxid, ms, unclean, approximate)."""
    world, found = World(rows), []
    reigns: dict[tuple[str, int], Life] = {}
    for key, state in world.states.items():
        if state["leader"] >= 0 and (life := world.life_of(state["leader"])) is not None:
            reigns[key] = life
    for transaction in _transactions(rows):
        for row in transaction:
            world.apply(row)
        for row in transaction:
            if not (match := _STATE.fullmatch(row.path)):
                continue
            key = (match[1], int(match[2]))
            if row.op in ("c", "d"):
                reigns.pop(key, None)
            state, before = _value(row.after), _value(row.before)
            if not state or state["leader"] < 0 or (life := world.life_of(state["leader"])) is None:
                continue
            former = reigns.get(key)
            reigns[key] = life
            if former is None or former is life:
                continue
            lost, isr = former.end, before.get("isr", [])
            marked = bool(state.get("leader_recovery_state")) and not before.get("leader_recovery_state")
            latency = None if lost is None else _ms(row.ts - lost.ts)
            found.append(
                (
                    *key,
                    *(row.zxid, row.controller_epoch, former.broker, state["leader"], state["leader_epoch"]),
                    *(None if lost is None else lost.zxid, latency),
                    *(state["leader"] not in isr or marked, lost is not None and lost.term != row.term),
                )
            )
    return sorted(found, key=lambda each: (each[2], *each[:2]))


def election_summary(rows: Sequence[Change]) -> Rows:
    """(epoch or None, lost, moved, unclean, p50, p95, p99, max, approximate)."""
    groups: dict[int | None, Rows] = defaultdict(list)
    for row in elections(rows):
        groups[row[3]].append(row)
        groups[None].append(row)
    answer: Rows = []
    for epoch in sorted(groups, key=lambda each: (each is None, each)):
        group = groups[epoch]
        latencies = sorted(row[8] for row in group if row[8] is not None)
        parts = tuple(_percentile(latencies, part) for part in (50, 95, 99))
        top = latencies[-1] if latencies else None
        moved, unclean, approximate = (
            len(group) - len(latencies),
            *(sum(row[at] for row in group) for at in (9, 10)),
        )
        answer.append((epoch, len(latencies), moved, unclean, *parts, top, approximate))
    return answer


def _percentile(ordered: list[int], part: int) -> float | None:
    if not ordered:
        return None
    place = (len(ordered) - 1) * part / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 6)


def controller_timeline(rows: Sequence[Change]) -> Rows:
    """(epoch, broker, from zxid, until zxid, gap)."""
    answer: list[list[Any]] = []
    ended: Change | None = None
    for row in rows:
        if row.path != "/controller":
            continue
        if row.op in ("d", "u"):
            if not answer:
                answer.append(
                    [row.controller_epoch, json.loads(row.before or b"{}")["brokerid"], None, None, None]
                )
            answer[-1][3] = answer[-1][3] or row.zxid
            ended = row
        elif row.op == "r":
            answer.append(
                [row.controller_epoch, json.loads(row.after or b"{}")["brokerid"], None, None, None]
            )
        else:
            gap = None if ended is None else _ms(row.ts - ended.ts)
            answer.append(
                [row.controller_epoch, json.loads(row.after or b"{}")["brokerid"], row.zxid, None, gap]
            )
    return [tuple(row) for row in answer]


def flapping(rows: Sequence[Change]) -> Rows:
    """(broker, registrations, bounces, generation, alive, up, down, shortest)."""
    world = World(rows)
    for row in rows:
        world.apply(row)
    first, last = min(row.ts for row in rows), max(row.ts for row in rows)
    lives: dict[int, list[Life]] = defaultdict(list)
    for life in world.lives:
        lives[life.broker].append(life)
    answer: Rows = []
    for broker, own in lives.items():
        begins = [first if life.begin is None else life.begin.ts for life in own]
        ups = [
            _ms((last if life.end is None else life.end.ts) - at)
            for life, at in zip(own, begins, strict=True)
        ]
        downs = [
            _ms(following - life.end.ts)
            for life, following in zip(own, (*begins[1:], last), strict=True)
            if life.end is not None
        ]
        shortest = [up for life, up in zip(own, ups, strict=True) if life.end is not None]
        answer.append(
            (
                *(broker, len(own), len(own) - 1, own[-1].generation, own[-1].end is None),
                *(sum(ups), sum(downs), min(shortest, default=None)),
            )
        )
    return sorted(answer, key=lambda each: (-each[2], -each[6], each[0]))


def cluster_at(rows: Sequence[Change], zxid: int) -> Rows:
    """(kind, name, leader, epoch, isr, replicas) as of a zxid."""
    world = World(rows)
    controller: tuple[Any, ...] | None = None
    for row in reversed(rows):
        if row.path == "/controller" and row.zxid > zxid:
            controller = (row.before, row.controller_epoch)
    for row in rows:
        if row.zxid > zxid:
            break
        world.apply(row)
        if row.path == "/controller":
            controller = (row.after, row.controller_epoch)
    answer: Rows = []
    if controller is not None and controller[0] is not None:
        answer.append(("controller", "", json.loads(controller[0])["brokerid"], controller[1], None, None))
    for broker, life in sorted(world.alive.items()):
        answer.append(("broker", str(broker), broker, life.generation, None, None))
    for (topic, partition), state in world.states.items():
        replicas = world.topics.get(topic, {}).get("partitions", {}).get(str(partition))
        name = f"{topic}-{partition}"
        answer.append(("partition", name, state["leader"], state["leader_epoch"], state["isr"], replicas))
    return answer
