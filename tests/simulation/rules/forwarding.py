"""Rules of forwarding: exactly once, in order, and never a wrong word about an outcome."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_FORWARDER = "quorum.raft.requests.origin_shell:Forwarder"
_INBOX = "quorum.raft.requests.origins:Inbox"
_OUTBOX = "quorum.raft.requests.origins:OriginOutbox"
_MACHINE = "quorum.core.machine:StateMachine"
_SOURCE = "ARCHITECTURE.md, Life of a write"

RULES: Final = (
    Rule(
        "a-leader-takes-the-next-number-only",
        _SOURCE,
        "the leader lets a batch into its log only if it is exactly the next of its origin",
        (
            Edit(f"{_INBOX}.offer", "if number < next_number:", "if number < 0:"),
            Edit(f"{_INBOX}.offer", "if number > next_number:", "if number < 0:"),
        ),
        guard="the state machine keeps the same rule, so that a batch may be late and never applied twice",
        beside="a-batch-is-applied-once",
    ),
    Rule(
        "a-batch-is-applied-once",
        _SOURCE,
        "the state machine applies a batch only if it is exactly the next of its origin",
        (
            Edit(
                f"{_MACHINE}.apply_batch",
                "(incarnation, number - 1) == known",
                "incarnation == known[0]",
            ),
        ),
        guard="the leader keeps the same rule and lets no other batch into the log; searched with that off "
        "as well",
        beside="a-leader-takes-the-next-number-only",
    ),
    Rule(
        "accept-behind-the-own-no-op",
        _SOURCE,
        "a leader accepts batches only after it applied its own no-op, and so all before it",
        (
            Edit(
                "quorum.node.replica:NodeReplica.leadership_changed",
                "self._engine.accepts_proposals = False",
                "self._engine.accepts_proposals = self._engine.leads",
            ),
        ),
        guard="it would take for the next number what an earlier leader has in the log already; the state "
        "machine makes that repeat void",
        beside="a-batch-is-applied-once",
    ),
    Rule(
        "other-incarnations-are-void",
        _SOURCE,
        "batches of another origin incarnation are void, in the log as at the leader's door",
        (
            Edit(
                f"{_MACHINE}.apply_batch",
                "(incarnation, number - 1) == known",
                "number - 1 == known[1]",
            ),
            Edit(f"{_INBOX}.offer", "if incarnation != known_incarnation:", "if False:"),
        ),
    ),
    Rule(
        "a-life-has-its-own-origin-incarnation",
        _SOURCE,
        "the origin incarnation is raised, durably, at every start",
        (
            Edit(
                "quorum.node.member:_next_incarnation",
                "return known + 1 if known >= applied",
                "return known if known >= applied",
            ),
            Edit(
                "quorum.raft.journal.index:LogIndex.add",
                "if record.number <= self.origin_incarnation:",
                "if False:",
            ),
        ),
    ),
    Rule(
        "a-disk-begins-with-an-origin-incarnation-of-its-own",
        _SOURCE,
        "a disk without a past begins at random: the log may hold batches of a lost disk of its node",
        (
            Edit(
                "quorum.node.member:_next_incarnation",
                "return FIRST_INCARNATION_MIN + runtime.random.randrange(FIRST_INCARNATION_MIN)",
                "return 1",
            ),
        ),
        profile="members",
    ),
    Rule(
        "another-disks-origin-incarnation-is-leapt-over",
        _SOURCE,
        "a number above another disk's is drawn: the next one may be that disk's own",
        (
            Edit(
                "quorum.raft.requests.origins:incarnation_above",
                "return known + 1 + random.randrange(LEAP_MAX)",
                "return known + 1",
            ),
        ),
    ),
    Rule(
        "a-snapshot-may-know-a-later-origin-incarnation",
        _SOURCE,
        "a life begins above what the snapshot knows, if the journal does not know it",
        (
            Edit(
                "quorum.node.member:_next_incarnation",
                "return known + 1 if known >= applied else incarnation_above(applied, runtime.random)",
                "return known + 1",
            ),
        ),
        guard="every header of the journal holds it; only a journal that lost its end does not",
        beside="a-header-holds-the-origin-incarnation",
        profile="crashes",
    ),
    Rule(
        "the-origin-incarnation-is-durable",
        _SOURCE,
        "the origin incarnation is in the journal before its first batch leaves",
        (
            Edit(
                "quorum.node.member:QuorumMember.__init__",
                "self.writer.submit([OriginIncarnation(self._incarnation)], lambda: None)",
                # A disk without any begins at random, which is never wrong.
                "if not storage.recovered.origin_incarnation:"
                " self.writer.submit([OriginIncarnation(self._incarnation)], lambda: None)",
            ),
        ),
    ),
    Rule(
        "abandoned-numbers-are-never-used-again",
        _SOURCE,
        "at a passed deadline the origin incarnation is raised, and its numbers are never used again",
        (
            Edit(f"{_OUTBOX}.abandon", "self.incarnation = incarnation", "pass"),
            Edit(f"{_OUTBOX}.abandon", "self.registered = False", "pass"),
            Edit(
                f"{_OUTBOX}.abandon",
                "self.next_number = 1 self._cursor = 1",
                "self.next_number = self._cursor = given_up[0].number if given_up else self.next_number",
            ),
            Edit(
                "quorum.raft.journal.index:LogIndex.add",
                "if record.number <= self.origin_incarnation:",
                "if False:",
            ),
        ),
    ),
    Rule(
        "a-raised-incarnation-is-durable",
        _SOURCE,
        "a raised incarnation is durable before it is used",
        (
            Edit(
                f"{_FORWARDER}._abandon",
                "self._host.make_incarnation_durable(raised, lambda: self._incarnation_durable(raised))",
                "self._incarnation_durable(raised)",
            ),
        ),
    ),
    Rule(
        "an-unknown-outcome-closes-connections",
        _SOURCE,
        "connections with a command in a batch whose outcome is unknown are closed",
        (Edit(f"{_FORWARDER}._abandon", "self._on_unknown(given_up)", "pass"),),
    ),
    Rule(
        "an-unknown-outcome-is-no-failure",
        _SOURCE,
        "an unknown outcome is never answered as a failure",
        (
            Edit(
                "quorum.node.batches:Batches._outcome_unknown",
                "self._lost(token)",
                "from quorum.core.results import Result, RunOutcome\n"
                "pipeline = getattr(token.reader, '_pipeline', None)\n"
                "if token.phase.value == 'open' and pipeline._pending:\n"
                "    xids = pipeline._pending[0].xids\n"
                "    failed = [Result(-103, token._host.replica.machine.zxid, None, None)] * len(xids)\n"
                "    pipeline.deliver(RunOutcome(0, 0, failed))\n"
                "else:\n"
                "    self._lost(token)",
            ),
        ),
    ),
    Rule(
        "an-installed-snapshot-hides-outcomes",
        _SOURCE,
        "batches that an installed snapshot covers have outcomes that nobody here will learn",
        (
            Edit(
                f"{_FORWARDER}.installed",
                "self._on_unknown(self._outbox.applied_through(last_number))",
                "self._outbox.applied_through(last_number)",
            ),
        ),
        guard="an install closes all connections anyway (watches-end-with-the-state)",
        beside="watches-end-with-the-state",
    ),
    Rule(
        "unapplied-batches-go-to-the-new-leader",
        _SOURCE,
        "an origin sends its unapplied batches again to a new leader",
        (
            Edit(f"{_FORWARDER}.leader_changed", "self._outbox.rewind()", "pass"),
            Edit(f"{_FORWARDER}.leader_ready", "self._outbox.rewind()", "pass"),
            Edit(f"{_FORWARDER}.leader_reconnected", "self._outbox.rewind()", "pass"),
            Edit(f"{_FORWARDER}.tick", "self._outbox.rewind()", "pass"),
            Edit(f"{_FORWARDER}._receive_expected", "self._outbox.rewind(message.number)", "pass"),
        ),
        guard="after the deadline the outcome is unknown and the origin begins anew: clients reconnect "
        "more often",
    ),
    Rule(
        "batches-go-in-order",
        _SOURCE,
        "unapplied batches are sent in order and under the same numbers",
        (Edit(f"{_OUTBOX}.take_sendable", "return taken", "return taken[::-1]"),),
        guard="the leader refuses gaps with the number that it expects; order costs only time",
    ),
    Rule(
        "a-registration-only-rises",
        _SOURCE,
        "a registration takes effect only if its incarnation is larger",
        (
            Edit(
                f"{_MACHINE}.apply_register",
                "effective = known is None or incarnation > known[0]",
                "effective = True",
            ),
        ),
        guard="the leader keeps the same rule and proposes no other; searched with that off as well",
        beside="a-leader-proposes-new-registrations-only",
    ),
    Rule(
        "a-leader-proposes-new-registrations-only",
        _SOURCE,
        "the leader proposes a registration only if none as large is applied or in its log",
        (Edit(f"{_FORWARDER}._receive_register", "if incarnation <= known: return", "if False: return"),),
        guard="the state machine keeps the same rule: a registration that is repeated changes nothing",
        beside="a-registration-only-rises",
    ),
    Rule(
        "messages-of-other-terms-are-dropped",
        _SOURCE,
        "a forwarded batch counts only in the term for which it was sent",
        (
            Edit(
                "quorum.raft.engine.engine:Engine.receive",
                "elif message.term == self.term and (",
                "elif (",
            ),
        ),
        guard="the number alone decides whether a batch is let into the log",
    ),
)
