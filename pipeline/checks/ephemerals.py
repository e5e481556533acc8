"""Sessions and their ephemerals: both are there if and only if the session is alive.

A key is a session. Operations of its client: `create` makes its ephemerals, all in one transaction, and has
[names, timeout in ms] as argument; `own` reads one of them through the session, result whether it is there;
`resume` takes the session over on a new connection; `intrude` tries that with a wrong password; `expired` is
the news that the session is over. `look` (key ALL) is what another client found after a sync: the names of
all ephemerals. Final state: `{key: ALL, left: names}` once all sessions must be over.

A session is known to be alive until the last of its operations that succeeded began.
Source: docs/internals/simulation.md, "What is checked"; ZooKeeper programmer's guide (sessions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import OK, Line, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "sessions and ephemerals"
#: the key of what concerns all sessions
ALL: Final = "sessions"
ALIVE: Final = ("create", "own", "resume")


def check_ephemerals(operations: Sequence[Operation], final: Iterable[Line]) -> Verdict:
    """Judge every session against its own operations and what others saw."""
    history = by_key(operations)
    looks = [(each, frozenset(each.result)) for each in history.pop(ALL, []) if each.outcome == OK]
    problems = [text for key, session in history.items() for text in _session(key, session, looks)]
    problems += [
        f"left by sessions that must be over: {', '.join(sorted(line['left']))}"
        for line in final
        if line["left"]
    ]
    return judge(CHECK, len(operations), problems)


def _session(
    key: str, session: Sequence[Operation], looks: Sequence[tuple[Operation, frozenset[str]]]
) -> Iterator[str]:
    known = [each for each in session if each.outcome == OK]
    for each in known:
        if each.operation == "intrude":
            yield f"{key}: was resumed with a wrong password"
        if each.operation == "own" and not each.result:
            yield f"{key}: its own ephemeral is missing: {each}"
    alive_ns = max((each.invoked_ns for each in known if each.operation in ALIVE), default=0)
    created = next((each for each in session if each.operation == "create"), None)
    expired = next((each for each in known if each.operation == "expired"), None)
    if expired is not None:
        yield from _expiry(key, expired, alive_ns, created)
    if created is not None and created.outcome == OK:
        yield from _seen(key, created, expired, alive_ns, looks)


def _expiry(key: str, expired: Operation, alive_ns: int, created: Operation | None) -> Iterator[str]:
    if alive_ns > expired.completed_ns:
        yield f"{key}: lived again after it had expired"
    elif created is not None:
        silent_ms, timeout_ms = (expired.completed_ns - alive_ns) / 1e6, created.argument[1]
        if silent_ms < timeout_ms:
            yield f"{key}: expired {silent_ms:.0f} ms after its client spoke; its timeout is {timeout_ms} ms"


def _seen(
    key: str,
    created: Operation,
    expired: Operation | None,
    alive_ns: int,
    looks: Sequence[tuple[Operation, frozenset[str]]],
) -> Iterator[str]:
    names = frozenset(created.argument[0])
    gone: Operation | None = None
    for look, found in looks:
        there = names & found
        if there and there != names:
            yield f"{key}: {look.process} saw only {', '.join(sorted(there))} of its ephemerals"
        if look.invoked_ns < created.completed_ns:
            continue
        if not there and look.completed_ns < alive_ns:
            yield f"{key}: {look.process} did not see its ephemerals while it was alive"
        if there and expired is not None and expired.completed_ns < look.invoked_ns:
            yield f"{key}: {look.process} saw its ephemerals after it had expired"
        if there and gone is not None and gone.completed_ns < look.invoked_ns:
            yield f"{key}: {look.process} saw its ephemerals after {gone.process} had not"
        if not there and (gone is None or look.completed_ns < gone.completed_ns):
            gone = look
