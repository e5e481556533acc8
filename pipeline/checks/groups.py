"""Consumer groups: no partition is owned twice, committed offsets never go back, nothing is left unread.

A key is a partition of a group. Operations of a member: `own` begins when it is assigned the partition and
ends when it gives it up, by its own account; `read` has the argument [first offset, last offset]; `commit`
has the offset as argument. `committed` is what an observer was answered. Final state: `{key, committed}`.

A member that is cut off may believe that it owns what another one has got; it must not commit. So a member
counts as the owner from its assignment until it asks for the last commit that succeeds. What is committed
must have been read by somebody, because the next owner goes on from there.
Source: docs/internals/simulation.md, "What is checked"; KIP-848; Kafka's protocol guide (generation_id).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import OK, Line, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK_OWNERS: Final = "one owner a partition"
CHECK_OFFSETS: Final = "committed offsets"
CHECK_READ: Final = "read before committed"


def check_groups(operations: Sequence[Operation], final: Iterable[Line]) -> list[Verdict]:
    """Judge every partition of every group on its own."""
    history = by_key(operations)
    ends = {str(line["key"]): int(line["committed"]) for line in final}
    owned = sum(each.operation == "own" for each in operations)
    commits = sum(each.operation == "commit" for each in operations)
    reads = sum(each.operation == "read" for each in operations)
    return [
        judge(CHECK_OWNERS, owned, [text for key in history for text in _owners(key, history[key])]),
        judge(
            CHECK_OFFSETS, commits, [text for key in history for text in _offsets(key, history[key], ends)]
        ),
        judge(CHECK_READ, reads, [text for key in history for text in _unread(key, history[key])]),
    ]


def _owners(key: str, history: Sequence[Operation]) -> Iterator[str]:
    """Find a member that commits what another one has been assigned."""
    commits = [each for each in history if each.operation == "commit" and each.outcome == OK]
    #: the owner that commits latest so far, and when it last asked for that
    holder: tuple[Operation, int] | None = None
    for each in sorted((one for one in history if one.operation == "own"), key=lambda one: one.invoked_ns):
        asked = [
            one.invoked_ns
            for one in commits
            if one.process == each.process and each.invoked_ns <= one.invoked_ns <= each.completed_ns
        ]
        until_ns = max(asked, default=each.invoked_ns)
        if holder is not None and holder[0].process != each.process and each.invoked_ns < holder[1]:
            late_ms = (holder[1] - each.invoked_ns) / 1e6
            yield (
                f"{key}: {holder[0].process} committed {late_ms:.1f} ms after {each.process} "
                f"had got it at {each.invoked_ns / 1e6:.1f}"
            )
        if holder is None or until_ns > holder[1]:
            holder = (each, until_ns)


def _offsets(key: str, history: Sequence[Operation], ends: dict[str, int]) -> Iterator[str]:
    """Compare each commit and each answer with everything that was over before it began."""
    known: list[tuple[Operation, int]] = [
        (each, each.argument if each.operation == "commit" else each.result)
        for each in history
        if each.outcome == OK and each.operation in ("commit", "committed")
    ]
    over = sorted(known, key=lambda one: one[0].completed_ns)
    place, highest = 0, -1
    for each, offset in sorted(known, key=lambda one: one[0].invoked_ns):
        while place < len(over) and over[place][0].completed_ns < each.invoked_ns:
            highest = max(highest, over[place][1])
            place += 1
        if offset < highest:
            yield f"{key}: {each.process}: {each.operation} {offset} after {highest} was committed"
    last = max((offset for _, offset in known), default=-1)
    if key in ends and ends[key] < last:
        yield f"{key}: {last} was committed, {ends[key]} is left in the end"


def _unread(key: str, history: Sequence[Operation]) -> Iterator[str]:
    """Find an offset below what was committed that no member has read."""
    committed = [each.argument for each in history if each.operation == "commit" and each.outcome == OK]
    next_offset = 0
    for first, last in sorted(each.argument for each in history if each.operation == "read"):
        if first > next_offset:
            break
        next_offset = max(next_offset, last + 1)
    if committed and max(committed) > next_offset:
        yield f"{key}: {max(committed)} was committed, and nobody read {next_offset}"
