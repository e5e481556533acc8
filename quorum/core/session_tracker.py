"""Who was heard of when: the reports of a follower and the deadlines of the leader.

Pure: times come in as arguments, in milliseconds of a clock that never goes back. Every node notes which
sessions it heard; a follower hands them to the leader, the leader moves their deadlines and names those that
have passed. Nothing expires here: expiry is a command of the log, judged again when it is applied. All of it
is soft state; a new leader starts with a full timeout for every session.

A deadline lies in a heap once per session and is moved lazily: a touch only writes a number, and whoever
comes up too early is put back. Source: docs/concepts/guarantees.md, "Sessions and watches"; ZooKeeper's
SessionTracker for the contract.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Final

#: A session that was named as due is named again after this long at the latest, if its expiry took no effect.
REPEAT_AFTER_MS: Final = 1000.0
#: Reports that are remembered until the leader is known to have heard them; more are merged into the next.
_REPORTS_MAX: Final = 64


class SessionTracker:
    """Touches and deadlines of sessions."""

    def __init__(self) -> None:
        #: {session id: None} heard since the last report, in the order of the first touch
        self._touched: dict[int, None] = {}
        #: (when, who) of reports that the leader is not known to have heard, oldest first
        self._reported: deque[tuple[float, list[int]]] = deque()
        #: {session id: timeout in ms}; only while leading
        self._timeouts: dict[int, int] = {}
        #: {session id: deadline less `_shift_ms`}; the same keys as `_timeouts`
        self._deadlines: dict[int, float] = {}
        #: (when to look at the session, never after its deadline unless it was named as due, session id)
        self._heap: list[tuple[float, int]] = []
        #: sum of all stalls of this leadership: what every deadline moved by
        self._shift_ms = 0.0
        self._leading = False

    @property
    def leading(self) -> bool:
        """Whether deadlines are kept."""
        return self._leading

    def touch(self, session_id: int) -> None:
        """Note that a client of this node was heard."""
        self._touched[session_id] = None

    def take_report(self, sessions_max: int, now_ms: float, heard_ms: float) -> list[int]:
        """Return whom this node heard since the last report, each once; the others come next time.

        Args:
            sessions_max: how many at most.
            now_ms: the clock.
            heard_ms: what was reported before this time reached the leader.
        """
        reported = self._reported
        while reported and reported[0][0] < heard_ms:
            reported.popleft()
        if len(reported) >= _REPORTS_MAX:
            self.report_again()
        touched = self._touched
        report = list(touched) if len(touched) <= sessions_max else list(islice(touched, sessions_max))
        for session_id in report:
            del touched[session_id]
        if report:
            reported.append((now_ms, report))
        return report

    def report_again(self) -> None:
        """Put what may not have reached the leader into the next reports: it is another one, or its link."""
        for _, report in self._reported:
            self._touched.update(dict.fromkeys(report))
        self._reported.clear()

    def become_leader(self, timeouts_ms: Iterable[tuple[int, int]], now_ms: float) -> None:
        """Start to keep deadlines; every session gets its full timeout.

        Args:
            timeouts_ms: (session id, timeout in ms) of every session.
            now_ms: the clock.
        """
        self._leading = True
        self._shift_ms = 0.0
        self._touched.clear()
        self._reported.clear()
        self._timeouts = dict(timeouts_ms)
        self._deadlines = {session_id: now_ms + timeout for session_id, timeout in self._timeouts.items()}
        self._heap = [(deadline, session_id) for session_id, deadline in self._deadlines.items()]
        heapify(self._heap)

    def step_down(self) -> None:
        """Forget the deadlines: another node keeps them now."""
        self._leading = False
        self._timeouts = {}
        self._deadlines = {}
        self._heap = []

    def opened(self, session_id: int, timeout_ms: int, now_ms: float) -> None:
        """Learn of a session that was created."""
        if self._leading:
            self._timeouts[session_id] = timeout_ms
            deadline = self._deadlines[session_id] = now_ms - self._shift_ms + timeout_ms
            heappush(self._heap, (deadline, session_id))

    def closed(self, session_id: int) -> None:
        """Learn that a session is over."""
        self._touched.pop(session_id, None)
        self._timeouts.pop(session_id, None)
        self._deadlines.pop(session_id, None)

    def touched(self, session_id: int, now_ms: float) -> None:
        """Move a deadline: the session was heard by this node or another, or a command of it was applied."""
        timeout_ms = self._timeouts.get(session_id)
        if timeout_ms is not None:
            self._deadlines[session_id] = now_ms - self._shift_ms + timeout_ms

    def deadlines(self) -> list[tuple[float, int]]:
        """Return (deadline in milliseconds of the clock, session id) of every session; only while leading."""
        return [(deadline + self._shift_ms, session_id) for session_id, deadline in self._deadlines.items()]

    def add_stall(self, stall_ms: float) -> None:
        """Move every deadline: for so long this node could not have heard anyone."""
        self._shift_ms += stall_ms

    def due(self, now_ms: float, sessions_max: int) -> list[int]:
        """Return sessions whose deadline has passed, the earliest first.

        Args:
            now_ms: the clock.
            sessions_max: how many at most; the others come with the next call.
        """
        for session_id in self._touched:
            self.touched(session_id, now_ms)
        self._touched.clear()
        passed = now_ms - self._shift_ms
        heap, deadlines = self._heap, self._deadlines
        due: list[int] = []
        while heap and heap[0][0] <= passed and len(due) < sessions_max:
            session_id = heap[0][1]
            deadline = deadlines.get(session_id)
            if deadline is None:
                heappop(heap)
            elif deadline > passed:
                heapreplace(heap, (deadline, session_id))
            else:
                due.append(session_id)
                # Not later than a deadline that a touch sets from now on.
                repeat_ms = min(REPEAT_AFTER_MS, self._timeouts[session_id])
                heapreplace(heap, (passed + repeat_ms, session_id))
        return due
