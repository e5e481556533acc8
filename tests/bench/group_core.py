"""What the pure part of the coordinator costs, without sockets: heartbeats of many members, and assignors.

Time is virtual: a minute of heartbeats runs through the machines and the timer wheel as quickly as it can,
and the CPU time that it took is what is measured.
"""

from __future__ import annotations

import time
from typing import Final

from broker.core.groups.assignors import ASSIGNORS
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.model import GroupLimits, Joined, JoinRequest, SyncRequest, Ticket
from broker.core.groups.timers import TICK_MS, TimerWheel

MEMBERS_EACH: Final = 4
HEARTBEAT_MS: Final = 3_000
SESSION_MS: Final = 45_000
MINUTE_MS: Final = 60_000

Wheel = TimerWheel[tuple[int, str]]


def stable_group(number: int, now_ms: int) -> ClassicGroup:
    """Return a group whose members have their assignment."""
    group = ClassicGroup(f"core-{number}", GroupLimits(initial_rebalance_delay_ms=0))
    protocols = (("range", b"metadata"),)
    for member in range(MEMBERS_EACH):
        request = JoinRequest(
            "",
            None,
            "bench",
            "/127.0.0.1",
            SESSION_MS,
            SESSION_MS,
            "consumer",
            protocols,
            needs_member_id=False,
        )
        group.join(Ticket(member), request, f"member-{number}-{member}", now_ms)
        if member:
            # Those that are members already come again.
            for known in group.members[:-1]:
                again = JoinRequest(
                    *(known.member_id, None, "bench", "/127.0.0.1"),
                    *(SESSION_MS, SESSION_MS, "consumer", protocols),
                )
                group.join(Ticket(0), again, "", now_ms)
    for known in group.members:
        group.sync(Ticket(0), SyncRequest(known.member_id, None, group.generation_id, None, None), now_ms)
    joined = [answer for _, answer in group.take_answers() if isinstance(answer, Joined)]
    assert joined and group.state.value == "Stable", group.state
    return group


def minute_of_heartbeats(members: int) -> float:
    """Return the CPU seconds that a minute of heartbeats of so many members takes."""
    groups = [stable_group(number, 0) for number in range(members // MEMBERS_EACH)]
    wheel: Wheel = TimerWheel(0)
    for number, group in enumerate(groups):
        for key, deadline_ms in group.take_timers():
            wheel.schedule((number, key), deadline_ms)
    turns = HEARTBEAT_MS // TICK_MS
    senders = [
        [(group, each.member_id) for group in groups[turn::turns] for each in group.members]
        for turn in range(turns)
    ]
    started = time.process_time()
    for now_ms in range(TICK_MS, MINUTE_MS + 1, TICK_MS):
        for group, member_id in senders[now_ms // TICK_MS % turns]:
            code = group.heartbeat(member_id, None, group.generation_id, now_ms)
            assert not code
        for number, key in wheel.expired(now_ms):
            deadline = groups[number].deadline_ms(key)
            if deadline is not None:
                assert deadline > now_ms, "a member that is heard was found dead"
                wheel.schedule((number, key), deadline)
    return time.process_time() - started


def assignment_seconds(assignor: str, partitions: int, members: int) -> float:
    """Return how long the loop stands still when a group of ten members has grown to so many."""
    names = [f"member-{number}" for number in range(members)]
    topics = frozenset(["bench"])
    counts = {"bench": partitions}
    assign = ASSIGNORS[assignor]
    before = assign(dict.fromkeys(names[:10], topics), counts, {})
    started = time.perf_counter()
    assign(dict.fromkeys(names, topics), counts, before)
    return time.perf_counter() - started
