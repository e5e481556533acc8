"""Rules of sessions and watches: who may write, when a session ends, what a client hears in which order."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit
from tests.simulation.rules.rule import Rule

_CONNECTION = "quorum.server.client:ClientConnection"
_PIPELINE = "quorum.server.answering:Pipeline"
_EXPIRY = "quorum.node.expiry:Expiry"
_FRONTEND = "quorum.server.frontend:Frontend"
_MACHINE = "quorum.core.machine:StateMachine"
_REPLICA = "quorum.node.replica:NodeReplica"
_TRACKER = "quorum.core.session_tracker:SessionTracker"
_SESSIONS = "guarantees.md, Sessions and watches"
_ORDERING = "ARCHITECTURE.md, Life of a write; guarantees.md, Reads"
_WATCHES = "guarantees.md, Sessions and watches"

RULES: Final = (
    Rule(
        "nobody-is-answered-while-the-disk-hangs",
        "guarantees.md, Reads; replica.contact_age_ms",
        "the age of the oldest group that is not durable counts as silence of the leader",
        (
            Edit(
                f"{_REPLICA}.contact_age_ms",
                "max(self._engine.contact_age_ms(), self._engine.undurable_ms())",
                "self._engine.contact_age_ms()",
            ),
        ),
        profile="hangs",
    ),
    Rule(
        "an-attach-fences-older-connections",
        _SESSIONS,
        "a command that arrives from an older attachment takes no effect",
        (
            Edit(
                f"{_MACHINE}._apply_run",
                "if session.nonce != nonce or session.node_id != self._origin:",
                "if type(commands[0]) is list and commands[0][0] == OP_ATTACH:",
            ),
        ),
    ),
    Rule(
        "an-attach-ends-older-connections",
        _SESSIONS,
        "the connection that a session has left is closed, also if the one on another node has its nonce",
        (
            Edit(
                f"{_FRONTEND}._heed_notice",
                "(node_id, nonce) != (self.replica.node_id, connection.nonce)",
                "nonce != connection.nonce",
            ),
        ),
        guard="nodes whose disks begin at random give the same nonce by chance alone",
        beside="a-disk-begins-with-an-origin-incarnation-of-its-own",
        profile="partitions",
    ),
    Rule(
        "an-expiry-names-what-it-judged",
        _SESSIONS,
        "an expiry is void if the session wrote above the index that was judged",
        (
            Edit(
                f"{_MACHINE}._expire",
                "session.last_index > judged_index",
                "False",
            ),
        ),
    ),
    Rule(
        "an-expiry-names-the-attachment",
        _SESSIONS,
        "an expiry is void if the session was attached again",
        (
            Edit(
                f"{_MACHINE}._expire",
                "session.nonce != nonce",
                "False",
            ),
        ),
        guard="an attach is a write of the session, and so stands above the index that was judged",
        beside="an-expiry-names-what-it-judged",
    ),
    Rule(
        "a-new-leader-grants-a-full-timeout",
        _SESSIONS,
        "a new leader grants every session a full timeout",
        (
            Edit(
                f"{_TRACKER}.become_leader",
                "{session_id: now_ms + timeout for session_id, timeout in self._timeouts.items()}",
                "dict.fromkeys(self._timeouts, now_ms)",
            ),
        ),
    ),
    Rule(
        "a-stall-moves-deadlines",
        _SESSIONS,
        "a leader whose own ticks stalled adds the stall to every deadline",
        (Edit(f"{_TRACKER}.add_stall", "self._shift_ms += stall_ms", "pass"),),
        guard="while a leader stands still for as long as the shortest session lasts, the others elect "
        "another one, which grants every session its full timeout",
    ),
    Rule(
        "touches-are-reported",
        _SESSIONS,
        "followers report the sessions that they heard to the leader",
        (
            Edit(
                f"{_EXPIRY}.report",
                "if touched:",
                "if False:",
            ),
        ),
    ),
    Rule(
        "what-is-applied-is-a-touch",
        _SESSIONS,
        "the leader counts an applied command as a touch",
        (
            Edit(
                f"{_FRONTEND}._note_activity",
                "sessions.touched(outcome.session_id, self.turn.ms())",
                "pass",
            ),
        ),
        profile="distant",
    ),
    Rule(
        "silent-sessions-end",
        _SESSIONS,
        "the leader proposes to expire a session that is silent",
        (Edit(f"{_EXPIRY}._expire", "if proposals:", "if False:"),),
        profile="partitions",
    ),
    Rule(
        "contact-loss-closes-clients",
        _SESSIONS,
        "a node that has not heard a current leader for long answers no client and closes their connections",
        (
            Edit(f"{_FRONTEND}._judge_contact", "silence_ms >= shares * each.silence_limit_ms", "False"),
            Edit(
                f"{_CONNECTION}.lacks_contact",
                "if self.read_only or host.contact.silence_ms(now_ms) < self.contact_limit_ms:",
                "if True:",
            ),
        ),
    ),
    Rule(
        "no-handshake-without-contact",
        _SESSIONS,
        "a node that hears no leader takes no handshakes",
        (
            Edit(
                "quorum.server.contact:Contact.serves",
                "return now_ms - self._heard_ms < self._options.contact_loss_ms_max",
                "return True",
            ),
        ),
        guard="a handshake goes through the log, and so waits for a leader",
    ),
    Rule(
        "a-close-ends-the-session",
        "simulation.md, What is checked",
        "nothing of a session takes effect after its close",
        (
            Edit(
                "quorum.core.writes:Writes.close_session",
                "del self.sessions[session.session_id]",
                "session.ephemerals = {}",
            ),
        ),
    ),
    Rule(
        "ephemerals-go-with-their-session",
        "simulation.md, What is checked",
        "all ephemerals of a session vanish in its end",
        (
            Edit(
                "quorum.core.writes:Writes.close_session",
                "for path in sorted(session.ephemerals):",
                "for path in sorted(session.ephemerals)[1:]:",
            ),
        ),
    ),
    Rule(
        "sessions-have-passwords",
        "simulation.md, What is checked",
        "a session is resumed only with its password",
        (
            Edit(
                "quorum.server.handshake:judge_handshake",
                "if not hmac.compare_digest(expected, request.password):",
                "if len(expected) != len(request.password):",
            ),
        ),
    ),
    Rule(
        "no-client-goes-back",
        "simulation.md, What is checked; guarantees.md, Sessions and watches",
        "a client that has seen a later zxid is turned away",
        (
            Edit(
                "quorum.server.handshake:judge_handshake",
                "if request.last_zxid_seen > machine.zxid:",
                "if False:",
            ),
        ),
        guard="a session begins and is resumed through the log, behind everything that its client saw: a "
        "node that is behind answers when it has caught up",
    ),
    Rule(
        "reads-wait-for-writes-before-them",
        _ORDERING,
        "a request waits for everything before it on its connection",
        (Edit(f"{_PIPELINE}.take_in", "if self._pending or self.ends_long:", "if self.ends_long:"),),
    ),
    Rule(
        "events-before-replies",
        _ORDERING,
        "an event leaves before any reply that could show its change",
        (
            Edit(
                f"{_PIPELINE}.deliver",
                "if events is not None: host.fire(zxid, events) if err:",
                "if events is not None:\n"
                "    host.turn.call_soon(lambda z=zxid, e=events: host.fire(z, e))\n"
                "if err:",
            ),
            Edit(
                f"{_FRONTEND}.applied",
                "self.fire(result.zxid, result.events)",
                "self.turn.call_soon(lambda r=result: self.fire(r.zxid, r.events))",
            ),
        ),
    ),
    Rule(
        "moved-sessions-are-not-answered",
        _ORDERING,
        "the connection that a session has left is closed, not answered",
        (Edit(f"{_PIPELINE}.deliver", "if err == SESSION_MOVED:", "if False:"),),
        guard="the client has left that connection: nobody reads the answer",
    ),
    Rule(
        "one-event-for-one-watch",
        f"{_WATCHES}; simulation.md, What is checked",
        "an event uses its watch up",
        (
            Edit(
                "quorum.core.watches:WatchTable.trigger",
                "self._keep(path, watcher, watchers, ~(fires & _ONE_SHOT))",
                "pass",
            ),
        ),
    ),
    Rule(
        "set-watches-tells-what-was-missed",
        f"{_WATCHES}; simulation.md, What is checked",
        "setWatches yields an event for what changed while the client was away",
        (Edit("quorum.core.rearm:rearm", "if event_type is None:", "if True:"),),
    ),
    Rule(
        "set-watches-leaves-the-others",
        f"{_WATCHES}; simulation.md, What is checked",
        "setWatches leaves the watches of what did not change",
        (Edit("quorum.core.rearm:rearm", "table.add(kind, path, watcher)", "pass"),),
    ),
    Rule(
        "set-watches-compares-zxids",
        f"{_WATCHES}; simulation.md, What is checked",
        "setWatches yields no event for what did not change",
        (
            Edit(
                "quorum.core.rearm:_missed_data",
                "if mzxid_of(record_of(node)) > relative_zxid else None",
                "if mzxid_of(record_of(node)) >= relative_zxid - 1 else None",
            ),
        ),
    ),
    Rule(
        "watches-end-with-the-state",
        _WATCHES,
        "an installed snapshot ends all connections: what fired in between is unknown",
        (
            Edit(
                f"{_FRONTEND}.installed",
                'self._finish_all(list(self.connections), "a snapshot was installed")',
                "pass",
            ),
        ),
    ),
    Rule(
        "watches-end-with-their-connection",
        _WATCHES,
        "the watches of a connection that is gone are forgotten",
        (Edit(f"{_FRONTEND}.closed", "self.replica.watches.remove_watcher(connection)", "pass"),),
        guard="what is queued for a connection that is gone is heard by nobody; it costs memory",
    ),
)
