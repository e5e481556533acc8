"""Rules of snapshots: when a file counts, what an install needs, what compaction may take away."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit, Setting
from tests.simulation.rules.rule import Rule

_STORE = "quorum.raft.snapshots.snapshots:SnapshotStore"
_EXCHANGE = "quorum.raft.snapshots.exchange:SnapshotCourier"
_RECEIVING = "quorum.raft.core.receiving"
_WALK = "quorum.core.snapshot_walk"

RULES: Final = (
    Rule(
        "compaction-goes-back-to-the-older-snapshot",
        "consensus.md, D5, Journal, Snapshots",
        "the log behind the older of the two kept snapshots stays",
        (
            Edit(
                f"{_STORE}.detach",
                "min([counted[0],",
                "min([counted[-1],",
            ),
        ),
        profile="disks",
    ),
    Rule(
        "two-snapshots-are-kept",
        "consensus.md, Snapshots",
        "two are kept; a broken newest one falls back to the one before",
        (Setting("quorum.raft.snapshots.snapshots:KEPT", 1),),
    ),
    Rule(
        "what-does-not-count-goes-before-the-log",
        "consensus.md, D5, Snapshots; snapshots.SnapshotStore.detach",
        "a snapshot whose name could not be made durable goes before the log behind it",
        (Edit(f"{_STORE}.adopt", "self._table.setdefault(path, (snapshot, _State.LEFT))", "pass"),),
        profile="compaction",
    ),
    Rule(
        "a-broken-snapshot-falls-back",
        "consensus.md, D14, Snapshots",
        "a broken newest snapshot is set aside and the one before is taken",
        (
            Edit(
                f"{_STORE}.load_newest",
                "self.broken.append(error)",
                "raise",
            ),
        ),
        profile="disks",
    ),
    Rule(
        "what-cannot-be-read-is-read-again",
        "guarantees.md, Faults; snapshots.SnapshotStore.load_newest",
        "a snapshot that a start could not read keeps its name for the next one",
        (
            Edit(
                f"{_STORE}.load_newest",
                "self.unread = self.unread or error",
                "self._disk.rename(snapshot.path, snapshot.path + _DAMAGED)",
            ),
        ),
    ),
    Rule(
        "broken-snapshots-are-no-empty-state",
        "consensus.md, D14",
        "where there are snapshots and none is good, the start is refused",
        (Edit(f"{_STORE}.load_newest", "if self.broken:", "if False:"),),
        guard="the log behind a snapshot is gone, and its beginning is compared with the state at the start",
        beside="the-highest-install-is-reached",
        profile="snapshots",
    ),
    Rule(
        "a-snapshot-is-synced-before-its-name",
        "consensus.md, D16",
        "a snapshot's bytes are durable before it has its name",
        (
            Edit(f"{_STORE}.adopt", "partial.fdatasync()", "pass"),
            Edit("quorum.raft.snapshots.snapshots:PartialSnapshot.append", "self._file.fdatasync()", "pass"),
        ),
    ),
    Rule(
        "a-snapshot-is-written-aside",
        "consensus.md, D16",
        "a snapshot is written under another name and renamed when it is whole",
        (
            Edit(f"{_STORE}.create_partial", 'partial = f"{path}.{origin}{_PARTIAL}"', "partial = path"),
            Edit(f"{_STORE}.adopt", "self._disk.rename(partial.path, path)", "pass"),
        ),
    ),
    Rule(
        "a-start-makes-names-durable",
        "consensus.md, D15, D16",
        "a snapshot that a start lists is one whose name is durable, whoever gave it the name",
        (Edit(f"{_STORE}.__init__", "disk.fsync_dir(directory)", "pass"),),
        profile="snapshots",
    ),
    Rule(
        "a-snapshot-has-its-name-durably",
        "consensus.md, D16",
        "the folder is fsynced behind the rename, before anything is compacted or acknowledged",
        (
            Edit(
                f"{_STORE}.adopt",
                "self._disk.rename(partial.path, path) self._disk.fsync_dir(self._directory)",
                "self._disk.rename(partial.path, path)",
            ),
        ),
    ),
    Rule(
        "a-snapshot-is-read-back",
        "consensus.md, D16",
        "a snapshot is verified before it counts",
        (Edit(f"{_STORE}.adopt", "for body in reader.bodies():", "for body in ():"),),
        guard="bytes change only on the disk here, not between the walk and the file. A piece that was lost "
        "or repeated is refused by its offset, and a load verifies again",
    ),
    Rule(
        "an-install-counts-when-durable",
        "consensus.md, D14, Snapshots",
        "an install is acknowledged only when its record is durable",
        (
            Edit(
                f"{_EXCHANGE}._make_durable",
                "self._journal.submit((Install(mark.snapshot_index, mark.snapshot_term),), durable)",
                "self._journal.submit((Install(mark.snapshot_index, mark.snapshot_term),), lambda: None)\n"
                "durable()",
            ),
        ),
    ),
    Rule(
        "an-install-has-a-record",
        "consensus.md, D14, D15, Snapshots",
        "an install is a record of the journal",
        (
            Edit(
                f"{_EXCHANGE}._make_durable",
                "self._journal.submit((Install(mark.snapshot_index, mark.snapshot_term),), durable)",
                "self._journal.submit((), durable)",
            ),
        ),
    ),
    Rule(
        "a-failed-install-is-refused",
        "consensus.md, D14",
        "an install that failed is answered with a refusal",
        (
            Edit(
                f"{_RECEIVING}:handle_failed",
                "rejected=True",
                "installed=True, match_index=incoming.snapshot_index",
            ),
        ),
        profile="snapshots",
    ),
    Rule(
        "the-highest-install-is-reached",
        "consensus.md, Snapshots",
        "a node that cannot reach the highest installed index refuses to start",
        (
            Edit(
                "quorum.raft.journal.start:Recovered.check_reaches",
                "elif install is not None and max(snapshot_index, self.last_index) < install.log_index:",
                "elif False:",
            ),
            Edit(
                "quorum.raft.journal.start:Recovered.check_reaches",
                "if snapshot_index < self.first_index - 1:",
                "if False:",
            ),
        ),
        profile="snapshots",
    ),
    Rule(
        "an-interrupted-install-is-finished",
        "consensus.md, D15",
        "a start finishes the install of a snapshot whose record a crash took",
        (
            Edit(
                "quorum.raft.journal.journal:Journal.open",
                "if snapshot is not None and (install := scan.log.resolve(Install(*snapshot))).resets_log:",
                "if False:",
            ),
        ),
        profile="snapshots",
    ),
    Rule(
        "the-log-beyond-a-snapshot-is-kept",
        "consensus.md, D15",
        "log and snapshot are matched by index and term; what the log has beyond is kept",
        (
            Edit(
                "quorum.raft.journal.index:LogIndex.resolve",
                "not unknown_base and known != term",
                "True",
            ),
            Edit(
                "quorum.raft.core.log:Log.install",
                "if self.term_at(snapshot_index) == snapshot_term:",
                "if False:",
            ),
            Edit(
                "quorum.raft.core.log:Log.install",
                "if self.first_index == snapshot_index + 1 and self._runs.term_at(snapshot_index) is None:",
                "if False:",
            ),
        ),
        profile="snapshots",
    ),
    Rule(
        "a-snapshot-holds-the-members-of-its-index",
        "consensus.md, D17",
        "a snapshot stores the membership as of its own index",
        (
            Edit(
                "quorum.node.snapshotting:Snapshotter._begin",
                "machine.cluster_id, machine.configuration,",
                "machine.cluster_id,\n    self._compaction._step.__self__.configuration.to_payload(),",
            ),
        ),
    ),
    Rule(
        "a-walk-keeps-what-changes",
        "consensus.md, Snapshots",
        "the overlay keeps the first old record of each changed znode",
        (Edit(f"{_WALK}:_Overlay.note", "known[name] = old", "known.setdefault(name, None)"),),
        profile="crashes",
    ),
    Rule(
        "a-walk-keeps-the-first-old-record",
        "consensus.md, Snapshots",
        "a znode that changes again keeps the form that it had when the walk began",
        (Edit(f"{_WALK}:_Overlay.note", "elif name in known: return", "elif name in known:\n    pass"),),
    ),
    Rule(
        "a-full-overlay-gives-up",
        "consensus.md, Snapshots",
        "a walk whose overlay is full is given up",
        (Edit(f"{_WALK}:_Overlay.note", "self.overflown = True", "pass"),),
    ),
    Rule(
        "a-sent-snapshot-stays",
        "consensus.md, Snapshots",
        "a snapshot that is being sent stays pinned, with the log behind it",
        (Edit(f"{_STORE}.detach", "or file.log_index in self._pins", ""),),
        guard="its open file is read to the end; the receiver then may need a newer one, which costs time",
    ),
    Rule(
        "pieces-in-order",
        "consensus.md, D18",
        "a piece that is not the next one is not written",
        (Edit(f"{_RECEIVING}:handle_chunk", "elif chunk.offset != incoming.offset:", "elif False:"),),
        guard="the file is verified as a whole before it is loaded, and refused (a-snapshot-is-read-back)",
    ),
    Rule(
        "an-installed-state-takes-the-others-place",
        "consensus.md, D14; Raft §7",
        "an installed snapshot replaces the state and what had been applied",
        (
            Edit(
                "quorum.node.member:QuorumMember._install",
                "self.replica.install(machine)",
                "pass",
            ),
        ),
    ),
)
