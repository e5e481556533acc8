"""The invariants, checked after every event of a node, on what all nodes hold and have ever held.

Decides what is a violation, and from the circumstances of the event which known defect it shows. An entry is
known by index, term and content. It counts as proven, and from then on as committed, once a majority of nodes
has held it; this is the weakest reading of Raft's rule (§5.3, §5.4), so that nothing correct is reported. A
violation's consequences are reported as well, but belong to no defect.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.scheduler import Scheduler
from tests.simulation.stock.findings import Check, Finding, spans
from tests.simulation.stock.stock_node import COMPACTION, INSTALL_FAILED, Entry, StockNode

Content = tuple[bytes, int]


class _Seen:
    """What the ledger knows of one node.

    Attributes:
        held: {index: content} of the log and of what was compacted, as far as a snapshot may not cover it.
        promised: the last index that the node acknowledged or committed and still has to hold.
        commit, applied: as of the last look; -1 before the first turn of a life.
        tried: the index that was applied last, even if that failed.
        blamed: {index: defect} of unproven entries that the node took for committed.
        removed: committed entries that left the log within this event.
        starts: [(what the kill before struck, indexes in the journal's file)] since the last comparison.
        match: as leader, {peer: what its acknowledgements were last counted for}.
        false_match: as leader, {peer: defect} of acknowledgements that were not true.
    """

    def __init__(self) -> None:
        self.held: dict[int, Content] = {}
        self.promised = 0
        self.commit = -1
        self.applied = -1
        self.tried = 0
        self.blamed: dict[int, str] = {}
        self.removed: list[int] = []
        self.starts: list[tuple[str, set[int]]] = []
        self.match: dict[int, int] = {}
        self.false_match: dict[int, str] = {}


class Ledger:
    """Everything that was ever stored, committed, proposed and answered in one world.

    Attributes:
        findings: the first of each kind, by (defect, check).
        committed: {index: content} of proven entries that some node took for committed.
        answers: {number of a proposal: how often its callback came}.
    """

    def __init__(self, scheduler: Scheduler, node_ids: range) -> None:
        self.findings: dict[tuple[str, Check], Finding] = {}
        self.committed: dict[int, Content] = {}
        self.answers: Counter[int] = Counter()
        self._scheduler = scheduler
        self._majority = len(node_ids) // 2 + 1
        self._ever: dict[int, dict[Content, int]] = {}
        self._seen = {node_id: _Seen() for node_id in node_ids}
        self._leaders: dict[int, int] = {}
        self._states: dict[int, tuple[int, int]] = {}
        #: {number: (index, defect by which it was applied)}
        self._acknowledged: dict[int, tuple[int, str]] = {}
        self._repeats: Counter[tuple[int, int, int]] = Counter()
        self._lost_by: list[str] = []

    def report(self, defect: str, check: Check, node: StockNode, seen: str) -> None:
        """Keep a violation, if it is the first of its kind."""
        if (defect, check) not in self.findings:
            now_ms, seed = self._scheduler.now_ms, self._scheduler.seed
            self.findings[defect, check] = Finding(defect, check, seed, now_ms, node.id, seen)

    # --- what a node does

    def loaded(self, node: StockNode, entries: list[Entry]) -> None:
        """A life begins; what it holds is compared after its first turn, which loads the snapshot."""
        seen = self._seen[node.id]
        seen.starts.append((node.struck, {entry[1] for entry in entries}))
        node.struck = ""
        seen.commit = seen.applied = -1
        seen.tried = 0
        seen.blamed = {}
        seen.removed = []

    def added(self, node: StockNode, entry: Entry) -> None:
        """An entry is in a node's log."""
        command, index, term = entry
        content = (command, term)
        self._seen[node.id].held[index] = content
        holders = self._ever.setdefault(index, {})
        holders[content] = holders.get(content, 0) | 1 << node.id

    def removing(self, node: StockNode, entries: list[Entry]) -> None:
        """A tail leaves a log; by the log matching property its first entry decides for all."""
        seen = self._seen[node.id]
        for command, index, term in entries:
            if self.committed.get(index) == (command, term):
                seen.removed.append(index)
            seen.held.pop(index, None)
        if entries:
            seen.promised = min(seen.promised, entries[0][1] - 1)

    def applying(self, node: StockNode, entry: Entry) -> None:
        """An entry is applied."""
        seen = self._seen[node.id]
        if entry[1] == seen.tried:
            self._repeats[node.id, node.life, entry[1]] += 1
        seen.tried = entry[1]

    def leads(self, node: StockNode) -> None:
        """A node became leader."""
        term = node.machine.raftCurrentTerm
        first = self._leaders.setdefault(term, node.id)
        seen = self._seen[node.id]
        seen.match, seen.false_match = {}, {}
        if first != node.id:
            self.report("", Check.ONE_LEADER, node, f"leads term {term}, as node {first} did")

    def promises(self, node: StockNode, index: int) -> None:
        """A node acknowledges."""
        seen = self._seen[node.id]
        seen.promised = max(seen.promised, index)

    def failed(self, node: StockNode, error: Exception) -> None:
        """A turn ended in an error; the state machine's own is allowed to."""
        if not isinstance(error, ArithmeticError):
            self.report("", Check.TOTAL, node, f"{type(error).__name__}: {error}")

    # --- answers

    def answered(self, node: StockNode, number: int, result: Any, error: int) -> None:
        """A callback was called, with 0 for success; it is called before the applied index rises."""
        self.answers[number] += 1
        if error:
            return
        seen, machine = self._seen[node.id], node.machine
        if machine.raftCommitIndex != seen.commit:
            self._look_at_commit(node, seen, machine.raftCommitIndex)  # raised in this very turn
        index = machine.raftLastApplied + 1
        content = _content(machine._SyncObj__raftLog, index)
        defect = seen.blamed.get(index, "")
        if self.committed.get(index) != content:
            text = (
                f"called back with SUCCESS for entry {index} of term {content[1]}, "
                f"held by {self._holders(index, content)} only"
            )
            self.report(defect, Check.SUCCESS_TRUE, node, text)
        if not isinstance(result, Exception):
            self._acknowledged[number] = (index, defect)

    # --- after every event

    def look(self, node: StockNode) -> None:
        """Compare a node with what was known."""
        seen, machine = self._seen[node.id], node.machine
        if not len(machine._SyncObj__raftLog):
            return  # compaction emptied a log that a snapshot had replaced: every turn fails from now on
        commit, applied = machine.raftCommitIndex, machine.raftLastApplied
        if seen.removed:
            self._report_removed(node, seen)
        if node.cleared:
            self._look_at_install(node, seen)
        if seen.applied < 0:
            if machine._SyncObj__needLoadDumpFile:
                return
            self._look_at_restart(node, seen)
        if node.letter is not None and node.is_leader:
            self._look_at_match(node, seen, *node.letter)
        if commit != seen.commit:
            self._look_at_commit(node, seen, commit)
        if applied != seen.applied:
            self._look_at_state(node, seen, applied)

    def _report_removed(self, node: StockNode, seen: _Seen) -> None:
        removed, seen.removed = seen.removed, []
        last = node.machine._SyncObj__raftLog[-1][1]
        still = [index for index in removed if index > last]
        message = node.letter[1].message if node.letter is not None else {}
        seen_text = (
            f"deleted committed entries {spans(removed)} from its log on an append behind entry "
            f"{message.get('prevLogIdx')} with {len(message.get('entries', ()))} entries; afterwards "
            + (f"{spans(still)} were gone" if still else "they were there again")
        )
        defect = "D2" if "prevLogIdx" in message else ""
        self.report(defect, Check.COMMITTED_STAYS, node, seen_text)

    def _look_at_install(self, node: StockNode, seen: _Seen) -> None:
        """Compare the log that a snapshot left with the one before."""
        if seen.applied < 0:
            return  # a start: the restart's check sees it
        last = node.machine._SyncObj__raftLog[-1][1]
        gone = sorted(index for index in seen.held if index > last)
        lost = [index for index in gone if seen.held[index] == self.committed.get(index)]
        for index in gone:
            del seen.held[index]
        seen.promised = min(seen.promised, last)
        seen.tried = 0
        if not node.machine.is_whole():
            text = f"took a damaged snapshot that ends at entry {last} for a whole one"
            self.report("D10", Check.STATES_EQUAL, node, text)
        if lost:
            text = f"dropped committed entries {spans(lost)} for a snapshot that ends at entry {last}"
            self.report("D15", Check.COMMITTED_STAYS, node, text)

    def _look_at_restart(self, node: StockNode, seen: _Seen) -> None:
        """Compare what a life begins with with what the last one promised."""
        machine = node.machine
        log = machine._SyncObj__raftLog
        first, last = log[0][1], log[-1][1]
        seen.applied, seen.commit = 0, min(first - 1, machine.raftCommitIndex)
        if first == 1:
            self.committed[1] = _content(log, 1)  # all begin with it
        if node.life > 1:
            lost = []
            for index in range(machine.raftLastApplied + 1, seen.promised + 1):
                kept = first <= index <= last and _content(log, index) == seen.held.get(index)
                if not kept:
                    lost.append(index)
            if lost:
                self._report_lost(node, seen, lost)
        seen.starts.clear()
        seen.held = {entry[1]: (entry[0], entry[2]) for entry in log[:]}
        seen.promised = min(seen.promised, last)

    def _report_lost(self, node: StockNode, seen: _Seen, lost: list[int]) -> None:
        machine = node.machine
        struck, in_file = seen.starts[0]
        committed = [index for index in lost if index in self.committed]
        text = (
            f"acknowledged entries {spans(lost)}, {len(committed)} of them committed, were not in its log "
            f"after a restart, nor in its snapshot, which ends at entry {machine.raftLastApplied}; "
        )
        if in_file.issuperset(lost):
            text += "the journal's file had them all, the start threw them away"
            defect = "D15"
        else:
            text += f"the kill struck {struck} and left {spans(sorted(in_file))} in the journal's file"
            defect = "D5" if struck == COMPACTION else ""
        self._lost_by.append(defect)
        self.report(defect, Check.RESTART_KEEPS, node, text)

    def _look_at_match(self, node: StockNode, seen: _Seen, peer: int, letter: Any) -> None:
        """See whether the acknowledgement that was just counted is true."""
        machine = node.machine
        if letter.message["type"] != "next_node_idx" or not letter.message["success"]:
            return
        index = machine._SyncObj__raftMatchIndex[machine_peer(machine, peer)]
        if index == seen.match.get(peer):
            return
        seen.match[peer] = index
        log = machine._SyncObj__raftLog
        if index < log[0][1]:
            return
        term = machine.raftCurrentTerm
        if index <= log[-1][1]:
            content = _content(log, index)
            if self._ever[index].get(content, 0) >> peer & 1:
                return
            what = f"its entry of term {content[1]} there was never in that node's log"
        else:
            what = f"its own log ends at {log[-1][1]}"
        why = f"sent in term {letter.term}" if letter.term != term else letter.remark
        defect = "D3" if letter.term != term else "D14" if letter.remark == INSTALL_FAILED else ""
        seen.false_match[peer] = defect
        text = (
            f"leader of term {term}, counted an acknowledgement of node {peer} up to {index} ({why}); {what}"
        )
        self.report(defect, Check.MATCH_TRUE, node, text)

    def _look_at_commit(self, node: StockNode, seen: _Seen, commit: int) -> None:
        """See whether the commit index covers only proven entries."""
        machine = node.machine
        log = machine._SyncObj__raftLog
        before, seen.commit = seen.commit, commit
        if commit < before:
            self.report(
                "", Check.APPLIED_RISES, node, f"its commit index went back from {before} to {commit}"
            )
        unproven, other = [], []
        for index in range(max(before + 1, log[0][1]), min(commit, log[-1][1]) + 1):
            content = _content(log, index)
            known = self.committed.get(index)
            if known == content:
                continue
            if known is not None:
                other.append(index)
            elif self._ever[index].get(content, 0).bit_count() < self._majority:
                unproven.append(index)
            else:
                self.committed[index] = content
        seen.promised = max(seen.promised, min(commit, log[-1][1]))
        if unproven or other:
            self._report_commit(node, seen, before, unproven, other)

    def _report_commit(
        self, node: StockNode, seen: _Seen, before: int, unproven: list[int], other: list[int]
    ) -> None:
        defect = self._cause(node, seen)
        seen.blamed.update(dict.fromkeys([*unproven, *other], defect))
        raised = f"{_role(node)}, raised its commit index from {before} to {seen.commit}{_how(node)}"
        log = node.machine._SyncObj__raftLog
        if unproven:
            content = _content(log, unproven[0])
            text = (
                f"{raised}; its entries {spans(unproven)}, the first of term {content[1]}, were held by "
                f"{self._holders(unproven[0], content)} only"
            )
            self.report(defect, Check.COMMIT_PROVEN, node, text)
        if other:
            terms = f"the first has term {_content(log, other[0])[1]}, not {self.committed[other[0]][1]}"
            text = f"{raised}; its entries {spans(other)} are not the committed ones ({terms})"
            self.report(defect, Check.COMMITTED_SAME, node, text)

    def _cause(self, node: StockNode, seen: _Seen) -> str:
        """Return the defect by which a commit index rose without proof, as far as the event tells."""
        if node.is_leader:
            causes = set(seen.false_match.values())
            return causes.pop() if len(causes) == 1 else ""
        message = node.letter[1].message if node.letter is not None else {}
        if message.get("type") == "append_entries" and "prevLogIdx" not in message:
            return "D14" if node.install_failed else "D1"
        return ""

    def _look_at_state(self, node: StockNode, seen: _Seen, applied: int) -> None:
        """Compare states at equal index."""
        if applied < seen.applied:
            text = f"its applied index went back from {seen.applied} to {applied}"
            self.report("", Check.APPLIED_RISES, node, text)
        seen.applied = applied
        state = (node.machine.digest, node.machine.balance)
        if self._states.setdefault(applied, state) != state:
            self.report("", Check.STATES_EQUAL, node, f"has another state at entry {applied} than others had")

    # --- at the end

    def close(self, nodes: list[StockNode]) -> None:
        """Check what only the settled end shows."""
        by_id = {node.id: node for node in nodes}
        for (node_id, life, index), times in self._repeats.items():
            node = by_id[node_id]
            text = f"applied entry {index} {times + 1} times in its life {life}"
            if node.life == life and node.machine is not None:
                text += f"; its applied index is {node.machine.raftLastApplied} in the end"
            silent = sum(1 for number in self.answers if not self.answers[number])
            text += f", and {silent} callbacks never came"
            self.report("D6", Check.APPLIED_ONCE, node, text)
        for number, times in self.answers.items():
            if times > 1:
                text = f"the callback of proposal {number} came {times} times"
                self.report("", Check.APPLIED_ONCE, nodes[0], text)
        up = [node for node in nodes if node.machine is not None]
        if up:
            self._look_for_acknowledged(max(up, key=lambda node: node.machine.raftLastApplied))

    def _look_for_acknowledged(self, node: StockNode) -> None:
        held, applied = set(node.machine.numbers), node.machine.raftLastApplied
        lost = {
            number: defect
            for number, (index, defect) in self._acknowledged.items()
            if index <= applied and number not in held
        }
        if lost:
            causes = set(lost.values()) - {""} or set(self._lost_by)
            text = f"{len(lost)} acknowledged commands are not in the state at entry {applied}"
            self.report(causes.pop() if len(causes) == 1 else "", Check.SUCCESS_KEPT, node, text)

    def _holders(self, index: int, content: Content) -> str:
        mask = self._ever[index].get(content, 0)
        holders = [node_id for node_id in self._seen if mask >> node_id & 1]
        return f"node {spans(holders)}" if len(holders) == 1 else f"nodes {spans(holders)}"


def machine_peer(machine: Any, peer: int) -> Any:
    """Return the library's node of an id."""
    return next(node for node in machine.otherNodes if node.id == peer)


def _content(log: Any, index: int) -> Content:
    command, _, term = log[index - log[0][1]]
    return command, term


def _role(node: StockNode) -> str:
    return f"{'leader' if node.is_leader else 'follower'} of term {node.machine.raftCurrentTerm}"


def _how(node: StockNode) -> str:
    """Return by which message a commit index rose, if by one that proves nothing."""
    message = node.letter[1].message if node.letter is not None else {}
    if message.get("type") != "append_entries" or "prevLogIdx" in message:
        return ""
    chunk = "an empty snapshot chunk" if message.get("serialized") is None else "a snapshot chunk"
    failed = ", which could not be loaded" if node.install_failed else ""
    return f" by an append with {chunk}{failed} and no entry before it to match"
