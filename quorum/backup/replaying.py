"""Entries of a log, applied to a state up to a point. Pure, but for the log that it is given.

Decides where a point lies: behind a transaction, which may be one of many in an entry. Entries go through the
state machine as on a node, so what comes out is the state as it was. Only the digests of an entry that is
applied in part differ.

Source: quorum/node/replica.py for what a node does with each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, assert_never

from quorum.core.codes import INT64_MAX
from quorum.core.machine import FORCED_ZXID_JUMP, StateMachine
from quorum.core.members import cluster_id_of
from quorum.core.quotas import QuotaRule
from quorum.node.replica import QUOTA_RULES
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.datadir.founding import parse_founding
from quorum.raft.requests.payloads import CONTROL_FORMAT, IMPORT_FORMAT, REQUEST_FORMAT, fields_of


class Limit(NamedTuple):
    """Where a replay ends: behind the last transaction that exceeds neither."""

    zxid: int = INT64_MAX
    stamp_ms: int = INT64_MAX


ALL: Final = Limit()


def replay(machine: StateMachine, entries: Iterable[Entry], limit: Limit, stamp_ms: int) -> int:
    """Apply entries up to a point.

    Args:
        machine: the state before them.
        entries: contiguous, the first one above what was applied.
        limit: the point.
        stamp_ms: of the last transaction in the state.

    Returns:
        The stamp of the last transaction then.
    """
    for entry in entries:
        if machine.zxid >= limit.zxid or entry.stamp_ms > limit.stamp_ms:
            break
        before = machine.zxid
        apply_entry(machine, entry, limit.zxid)
        if machine.zxid != before:
            stamp_ms = machine.last_stamp_ms
        if machine.applied_index < entry.index:
            break
    return stamp_ms


def apply_entry(machine: StateMachine, entry: Entry, zxid_max: int = INT64_MAX) -> None:
    """Apply one entry, as far as no transaction exceeds a zxid."""
    index, term, kind, stamp_ms, payload = entry
    match kind:
        case EntryKind.BATCH:
            _apply_batch(machine, entry, zxid_max)
        case EntryKind.CONTROL:
            shape, proposals = fields_of(kind, payload)
            rule = QuotaRule.KEPT if shape >= CONTROL_FORMAT else QuotaRule.IGNORED
            for part in _parts(proposals, zxid_max - machine.zxid):
                machine.applied_index = index - 1
                machine.apply_control(index, term, stamp_ms, part, rule)
                if machine.zxid >= zxid_max:
                    return
        case EntryKind.REGISTER:
            _, node_id, incarnation = fields_of(kind, payload)
            machine.apply_register(index, term, stamp_ms, node_id, incarnation)
        case EntryKind.NOOP:
            machine.apply_noop(index, term, stamp_ms)
        case EntryKind.FOUND:
            founding = parse_founding(payload)
            cluster_id = founding.configuration.cluster_id
            machine.apply_found(index, term, stamp_ms, cluster_id, founding.session_key, payload)
        case EntryKind.MEMBERS:
            # A point may lie in the gap that a forced start leaves.
            jumps = cluster_id_of(payload) not in ("", machine.cluster_id)
            if not jumps or machine.zxid + FORCED_ZXID_JUMP < zxid_max:
                machine.apply_configuration(index, term, stamp_ms, payload)
        case _:
            assert_never(kind)


def _apply_batch(machine: StateMachine, entry: Entry, zxid_max: int) -> None:
    shape, origin, incarnation, number, runs = fields_of(entry.kind, entry.payload)
    imports = shape == IMPORT_FORMAT
    rule = QuotaRule.KEPT if imports else QUOTA_RULES.get(shape, QuotaRule.IGNORED)
    if shape == REQUEST_FORMAT:
        runs = [None]
    before = (incarnation, number - 1)
    counts = machine.origins.get(origin) == before
    room = zxid_max - machine.zxid if counts else INT64_MAX
    for part in _parts(runs, 0 if zxid_max < INT64_MAX else room) if imports else _parts_of_runs(runs, room):
        if imports and counts and zxid_max < INT64_MAX and type(part) is list and part:
            # A point may lie in the gap that a step leaves.
            reached = machine.transaction.zxid_of_step(part[0])
            if reached is not None and reached > zxid_max:
                machine.applied_index = entry.index - 1
                return
        if counts:
            machine.origins[origin] = before
        machine.applied_index = entry.index - 1
        for _ in machine.apply_batch(
            *(entry.index, entry.term, entry.stamp_ms, origin, incarnation, number, part, rule),
            imports=imports,
        ):
            pass
        if machine.zxid >= zxid_max:
            return


def _parts_of_runs(runs: list[Any], room: int) -> Iterator[list[Any]]:
    """Yield the runs of a batch at once, or command by command if they might take more zxids than `room`."""
    fit = [run for run in runs if type(run) is list and len(run) == 4 and type(run[3]) is list]
    if sum(len(run[3]) for run in fit) <= room:
        yield runs
        return
    for run in fit:
        for command in run[3]:
            yield [[*run[:3], [command]]]


def _parts(proposals: Any, room: int) -> Iterator[Any]:
    if type(proposals) is not list or len(proposals) <= room:
        yield proposals
        return
    for proposal in proposals:
        yield [proposal]
