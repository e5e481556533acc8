"""The state machine: applies one committed log entry after the other, and nothing else changes the state.

It decides which session may write (attachment and incarnations), which command gets a zxid, the result of
every command, and the two digests of an entry. It is total: whatever a command holds, the outcome is a
result; an exception means that the caller broke the order of entries. Everything in it is hard state but the
context of the open entry. It knows no clock: stamps, terms and indexes come with the entries.

Zxids: one per create of any kind, delete, setData, setACL, multi, createSession, closeSession (failed ones
too), step of an import, effective expiry, effective deletion of a container or TTL node and change of
members; none for attach, sync, register, no-op, answers, levels, fenced or unknown commands, void proposals.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final

from quorum.core.codes import (
    BAD_ARGUMENTS,
    INT32_MAX,
    INT64_MAX,
    NOT_READ_ONLY,
    OK,
    OP_ATTACH,
    OP_CLOSE_SESSION,
    OP_CREATE,
    OP_CREATE2,
    OP_CREATE_CONTAINER,
    OP_CREATE_SESSION,
    OP_CREATE_TTL,
    OP_DELETE,
    OP_MULTI,
    OP_SET_ACL,
    OP_SET_DATA,
    OP_SYNC,
    SESSION_ATTACHED,
    SESSION_CLOSED,
    SESSION_EXPIRED,
    SESSION_MOVED,
    UNIMPLEMENTED,
)
from quorum.core.feature_levels import BASE_LEVEL, raised_level
from quorum.core.founding import plant
from quorum.core.importing import ImportTransaction
from quorum.core.invariants import verify
from quorum.core.members import cluster_id_of, describe_members, same_members
from quorum.core.quotas import QuotaRule
from quorum.core.reaping import find_due
from quorum.core.records import HEADER_BYTES
from quorum.core.results import Event, Result, RunOutcome, Value
from quorum.core.sessions import Session
from quorum.core.shapes import has_length, is_uint64, opcode_of
from quorum.core.tree import Tree, record_of

DIGEST_BYTES: Final = 16
CONFIG_PATH: Final = "/zookeeper/config"
#: by how much the zxid rises when a cluster goes on from one survivor, as with an epoch of ZooKeeper's
FORCED_ZXID_JUMP: Final = 1 << 32
#: by how much the last session id rises then
FORCED_SESSION_ID_JUMP: Final = 1 << 32
_INDEX: Final = Struct(">q")

# marks of what an entry's apply digest is made of; each is followed by a fixed number of numbers
_BATCH: Final = -2000
_RUN: Final = -2001
_SESSION: Final = -2002
_CLOSED: Final = -2003
_ATTACHED: Final = -2004
_ORIGIN: Final = -2005
_LEVEL: Final = -2006
#: unsigned 64-bit numbers are shifted into the signed range of the digest's array
_SHIFT: Final = 1 << 63

# a Result costs half when its generated constructor is passed by
_new_tuple = tuple.__new__


class StateMachine:
    """The replicated state of one node.

    Args:
        snapshot_overlay_bytes_max: bound of what a running snapshot may keep of changed nodes, in bytes.
    """

    def __init__(self, snapshot_overlay_bytes_max: int = 64 * 1024 * 1024) -> None:
        self.snapshot_overlay_bytes_max: Final = snapshot_overlay_bytes_max
        self.tree: Final = Tree()
        self.transaction: Final = ImportTransaction(self.tree)
        #: {session id: Session}
        self.sessions: Final = self.transaction.sessions
        #: ids of sessions given so far; never reused
        self.session_counter = 0
        #: from which one on something new may be used; never falls
        self.feature_level = BASE_LEVEL
        self.cluster_id = ""
        #: key of the session passwords, from entry 1
        self.session_key = b""
        #: JSON payload of the last configuration entry
        self.configuration = b""
        #: {node id: (origin incarnation, number of the last batch applied)}
        self.origins: dict[int, tuple[int, int]] = {}
        self.applied_index = 0
        self.applied_term = 0
        self.last_stamp_ms = 0
        self.state_digest = bytes(DIGEST_BYTES)
        self.apply_digest = bytes(DIGEST_BYTES)
        self._open_index: int | None = None
        self._origin = 0
        self._notes: list[bytes] = []
        transaction = self.transaction
        self._writes: Final = {
            OP_SET_DATA: transaction.set_data,
            OP_MULTI: transaction.multi,
            OP_CREATE: transaction.create,
            OP_CREATE2: transaction.create2,
            OP_DELETE: transaction.delete,
            OP_SET_ACL: transaction.set_acl,
            OP_CREATE_CONTAINER: transaction.create_container,
            OP_CREATE_TTL: transaction.create_ttl,
        }

    @property
    def zxid(self) -> int:
        """The last transaction."""
        return self.transaction.zxid

    @property
    def entry_is_open(self) -> bool:
        """Whether an entry is half applied (between two runs of a batch)."""
        return self._open_index is not None

    def check_invariants(self) -> None:
        """Compare everything that is kept twice; walks the whole tree."""
        verify(self.tree, self.sessions, self.zxid)

    # Entries

    def apply_batch(
        self,
        index: int,
        term: int,
        stamp_ms: int,
        origin: int,
        incarnation: int,
        number: int,
        runs: object,
        quota_rule: QuotaRule = QuotaRule.KEPT,
        *,
        imports: bool = False,
    ) -> Iterator[RunOutcome]:
        """Apply a batch of client commands, run by run.

        A batch of another incarnation, a repeated one and one that comes too early are void: nothing is
        yielded. The caller must exhaust the iterator; the entry counts as applied when it ends.

        Args:
            index: log index of the entry, one above the last.
            term: the entry's term.
            stamp_ms: the leader's wall clock.
            origin: id of the node whose clients sent the commands.
            incarnation: the origin's incarnation.
            number: the batch's number in that incarnation, from 1.
            runs: [[session_id, nonce, identities, commands], …].
            quota_rule: what the entry does about quotas.
            imports: whether the runs are steps of an import.

        Yields:
            One outcome per run; of a run that is not of that shape an empty one.
        """
        self._open(index, term, stamp_ms)
        self.transaction.quota_rule = quota_rule
        if type(origin) is int and type(number) is int and type(runs) is list:
            known = self.origins.get(origin)
            if known is not None and (incarnation, number - 1) == known:
                self.origins[origin] = (known[0], known[1] + 1)
                self._origin = origin
                self.transaction.outcomes += (_BATCH, origin, known[1] + 1)
                for run in runs:
                    yield self._import(run) if imports else self._apply_run(run)
        self._close()

    def apply_found(
        self,
        index: int,
        term: int,
        stamp_ms: int,
        cluster_id: str,
        session_key: bytes,
        configuration_payload: bytes,
    ) -> None:
        """Apply the first entry: the cluster gets its identity and the nodes that ZooKeeper has at zxid 0."""
        self._open(index, term, stamp_ms)
        if not self.cluster_id:
            self.cluster_id, self.session_key = cluster_id, session_key
            self.configuration = configuration_payload
            self._notes += (b"found", cluster_id.encode(), session_key, configuration_payload)
            if self.tree.get(CONFIG_PATH) is None:
                plant(self.tree, CONFIG_PATH, describe_members(configuration_payload, 0))
            else:  # of a restored state
                described = describe_members(configuration_payload, self.zxid + 1)
                self.transaction.describe_members(CONFIG_PATH, described)
        self._close()

    def apply_configuration(
        self, index: int, term: int, stamp_ms: int, configuration_payload: bytes
    ) -> Result:
        """Apply a new configuration; a zxid and an event only if `/zookeeper/config` changes with it.

        Another cluster id comes from a forced start, and lets the zxid and the session ids jump.
        """
        self._open(index, term, stamp_ms)
        transaction = self.transaction
        cluster_id = cluster_id_of(configuration_payload)
        if cluster_id and self.cluster_id and cluster_id != self.cluster_id:
            # A forced start: what other nodes acknowledged before, and clients saw, must lie below.
            self.cluster_id = cluster_id
            transaction.zxid += FORCED_ZXID_JUMP
            transaction.zxid_jump = FORCED_ZXID_JUMP
            # Or a client would resume a session that is somebody else's by now: its password is the same.
            self.session_counter += FORCED_SESSION_ID_JUMP
            transaction.outcomes += (transaction.zxid, self.session_counter)
        self.configuration = configuration_payload
        self._notes += (b"configuration", configuration_payload)
        node = self.tree.get(CONFIG_PATH)
        description = describe_members(configuration_payload, transaction.zxid + 1)
        events: list[Event] | None = None
        if node is not None and not same_members(record_of(node)[HEADER_BYTES:], description):
            events = transaction.describe_members(CONFIG_PATH, description)
            transaction.outcomes.append(transaction.zxid)
        self._close()
        return Result(OK, transaction.zxid, None, events)

    def apply_register(self, index: int, term: int, stamp_ms: int, node_id: int, incarnation: int) -> bool:
        """Let a node's origin incarnation take effect if it is larger; its batches then count from 1.

        Returns whether it took effect.
        """
        self._open(index, term, stamp_ms)
        effective = False
        if type(node_id) is int and 0 <= node_id <= INT32_MAX and is_uint64(incarnation):
            known = self.origins.get(node_id)
            effective = known is None or incarnation > known[0]
            if effective:
                self.origins[node_id] = (incarnation, 0)
                self.transaction.outcomes += (_ORIGIN, node_id, incarnation - _SHIFT)
        self._close()
        return effective

    def apply_control(
        self,
        index: int,
        term: int,
        stamp_ms: int,
        proposals: object,
        quota_rule: QuotaRule = QuotaRule.KEPT,
    ) -> list[Result]:
        """Apply the leader's own proposals.

        Args:
            index: log index of the entry, one above the last.
            term: the entry's term.
            stamp_ms: the leader's wall clock.
            proposals: a list of ["expire", session_id, nonce, judged_index], to end a session, ["reap", path,
                czxid], to delete a container or TTL node, ["level", feature_level], to raise it, and
                ["answer", …], which changes nothing.
            quota_rule: what the entry does about quotas.

        Returns:
            A result per proposal; of a void one an error, without a zxid of its own: SESSION_EXPIRED (the
            session is gone), SESSION_MOVED (it was attached or wrote after it was judged), NO_NODE or
            BAD_VERSION (as `find_due` says), NOT_READ_ONLY (nothing is reaped while an import is under way)
            or BAD_ARGUMENTS (no such proposal, or no rise of the level).
        """
        self._open(index, term, stamp_ms)
        self.transaction.quota_rule = quota_rule
        results = [self._conclude(each) for each in proposals] if type(proposals) is list else []
        self._close()
        return results

    def apply_noop(self, index: int, term: int, stamp_ms: int) -> None:
        """Apply an entry that changes nothing."""
        self._open(index, term, stamp_ms)
        self._close()

    def _open(self, index: int, term: int, stamp_ms: int) -> None:
        if self._open_index is not None:
            raise ValueError(
                f"entry {index} cannot be applied while entry {self._open_index} is half applied"
            )
        if index != self.applied_index + 1:
            raise ValueError(f"entry {index} cannot be applied after entry {self.applied_index}")
        if not self.last_stamp_ms <= stamp_ms <= INT64_MAX:
            # times never go back, whatever a leader's clock said
            stamp_ms = self.last_stamp_ms
        self._open_index = index
        self.applied_term = term
        self.last_stamp_ms = stamp_ms
        self.transaction.stamp_ms = stamp_ms
        self.transaction.zxid_jump = 0

    def _close(self) -> None:
        """Continue the digests; from here on the entry counts as applied."""
        index = self._open_index
        assert index is not None
        transaction = self.transaction
        changes = self.tree.changes
        if changes:
            digest = blake2b(self.state_digest, digest_size=DIGEST_BYTES)
            digest.update(b"".join(changes))
            self.state_digest = digest.digest()
            changes.clear()
        numbers = array("q", transaction.outcomes)
        if sys.byteorder == "big":
            numbers.byteswap()
        transaction.outcomes.clear()
        notes = b"".join([b"%d:%b" % (len(note), note) for note in self._notes]) if self._notes else b""
        self._notes.clear()
        pieces = (self.apply_digest, _INDEX.pack(index), numbers.tobytes(), notes)
        self.apply_digest = blake2b(b"".join(pieces), digest_size=DIGEST_BYTES).digest()
        self.applied_index = index
        self._open_index = None

    # Runs

    def _apply_run(self, run: object) -> RunOutcome:
        """Apply the commands of one connection."""
        if type(run) is not list or len(run) != 4:
            return RunOutcome(0, 0, [])
        session_id, nonce, identities, commands = run
        if type(session_id) is not int or not is_uint64(nonce) or type(commands) is not list:
            return RunOutcome(0, 0, [])
        transaction = self.transaction
        session = self.sessions.get(session_id)
        transaction.outcomes += (_RUN, 0 if session is None else session_id)
        if self.tree.trace is not None:
            transaction.mark(0 if session is None else session_id, self._origin)
        results: list[Result] = []
        remaining = iter(commands)
        if session is None:
            results += [self._apply_without_session(command, session_id, nonce) for command in remaining]
            return RunOutcome(session_id, nonce, results)
        if session.nonce != nonce or session.node_id != self._origin:
            for command in remaining:
                if opcode_of(command) == OP_ATTACH:
                    results.append(self._attach(command, session, nonce))
                    break
                results.append(self._answer(SESSION_MOVED))
            else:
                return RunOutcome(session_id, nonce, results)
        transaction.identities = identities
        transaction.session = session
        self._apply_attached(remaining, session, results)
        return RunOutcome(session_id, nonce, results)

    def _import(self, step: object) -> RunOutcome:
        """Apply a step of an import."""
        transaction = self.transaction
        transaction.mark(0, self._origin)
        result = transaction.import_step(step)
        self._notes += (b"import", transaction.import_source.encode(), b"%d" % transaction.import_floor)
        return RunOutcome(0, 0, [result])

    def _apply_attached(self, commands: Iterator[object], session: Session, results: list[Result]) -> None:
        """Apply the commands that come from a session's own attachment; this is the hot path."""
        transaction = self.transaction
        outcomes = transaction.outcomes
        writes = self._writes if not transaction.import_source else {}
        session.last_index = self.applied_index + 1
        value: Value
        for command in commands:
            try:
                write = writes[command[0]]  # type: ignore[index]  # what cannot be indexed is not a write
            except (LookupError, TypeError):
                results.append(self._apply_other(command, session))
                if session.session_id not in self.sessions:
                    results += [self._answer(SESSION_EXPIRED) for _ in commands]
                continue
            zxid = transaction.zxid = transaction.zxid + 1
            events: list[Event] = []
            transaction.events = events
            value = write(command)  # type: ignore[arg-type]  # the operation checks what it was given
            if isinstance(value, int):
                outcomes += (value, zxid)
                results.append(_new_tuple(Result, (value, zxid, None, None)))
            else:
                outcomes.append(zxid)
                results.append(_new_tuple(Result, (OK, zxid, value, events or None)))

    def _apply_other(self, command: object, session: Session) -> Result:
        """Apply a command of an attached session that does not write the tree."""
        opcode = opcode_of(command)
        if opcode == OP_SYNC:
            return self._answer(OK if has_length(command, 2) else BAD_ARGUMENTS)
        if opcode == OP_CLOSE_SESSION:
            return self._close_session(session) if has_length(command, 1) else self._fail(BAD_ARGUMENTS)
        if opcode == OP_ATTACH:
            return self._attach(command, session, session.nonce)
        if opcode == OP_CREATE_SESSION:
            return self._fail(BAD_ARGUMENTS)
        # Only an import takes the writes away.
        return self._fail(NOT_READ_ONLY) if opcode in self._writes else self._answer(UNIMPLEMENTED)

    def _apply_without_session(self, command: object, session_id: int, nonce: int) -> Result:
        """Apply a command of a connection whose session does not exist: only a new session can come of it."""
        if session_id or opcode_of(command) != OP_CREATE_SESSION:
            return self._answer(SESSION_EXPIRED)
        timeout_ms = command[1] if type(command) is list and len(command) == 2 else None
        if type(timeout_ms) is not int or not 0 < timeout_ms <= INT32_MAX:
            return self._fail(BAD_ARGUMENTS)
        self.session_counter += 1
        created_id = self.session_counter
        self.sessions[created_id] = Session(
            created_id, timeout_ms, self._origin, nonce, self.applied_index + 1
        )
        transaction = self.transaction
        transaction.mark(created_id, self._origin)
        transaction.zxid += 1
        transaction.outcomes += (_SESSION, created_id, timeout_ms, nonce - _SHIFT, transaction.zxid)
        events: list[Event] = [(SESSION_ATTACHED, created_id, self._origin, nonce)]
        return Result(OK, transaction.zxid, (created_id, timeout_ms), events)

    def _attach(self, command: object, session: Session, nonce: int) -> Result:
        """Let the commands of another connection count from here on."""
        if not has_length(command, 1):
            return self._answer(BAD_ARGUMENTS)
        session.node_id, session.nonce = self._origin, nonce
        transaction = self.transaction
        transaction.outcomes += (_ATTACHED, session.session_id, self._origin, nonce - _SHIFT)
        events: list[Event] = [(SESSION_ATTACHED, session.session_id, self._origin, nonce)]
        return Result(OK, transaction.zxid, session.timeout_ms, events)

    def _close_session(self, session: Session) -> Result:
        """End a session; all its ephemerals vanish in one transaction."""
        transaction = self.transaction
        transaction.zxid += 1
        events = transaction.events = []
        transaction.close_session(session)
        events.append((SESSION_CLOSED, session.session_id))
        transaction.outcomes += (_CLOSED, session.session_id, transaction.zxid)
        return Result(OK, transaction.zxid, None, events)

    def _conclude(self, proposal: object) -> Result:
        """Apply one proposal of the leader, if it still holds."""
        match proposal:
            case ["expire", *arguments]:
                return self._expire(arguments)
            case ["reap", *arguments]:
                return self._reap(arguments)
            case ["level", *arguments] if level := raised_level(self.feature_level, arguments):
                self.feature_level = level
                self.transaction.outcomes += (_LEVEL, level)
                return self._answer(OK)
            case _:
                is_answer = isinstance(proposal, list) and proposal[:1] == ["answer"]
                return self._answer(OK if is_answer else BAD_ARGUMENTS)

    def _reap(self, arguments: list[object]) -> Result:
        """Delete a container or TTL node; void if it is another one, or not due by this entry's stamp."""
        transaction = self.transaction
        # What an import has set goes when it goes at the source.
        closed = bool(transaction.import_source)
        path = NOT_READ_ONLY if closed else find_due(self.tree, arguments, self.last_stamp_ms)
        if isinstance(path, int):
            return self._answer(path)
        transaction.mark(0, 0)
        transaction.zxid += 1
        events = transaction.events = []
        transaction.reap(path)
        transaction.outcomes.append(transaction.zxid)
        return Result(OK, transaction.zxid, None, events)

    def _expire(self, arguments: list[object]) -> Result:
        """End a session on the leader's proposal; void if it was heard of since it was judged."""
        if len(arguments) != 3:
            return self._answer(BAD_ARGUMENTS)
        session_id, nonce, judged_index = arguments
        if type(session_id) is not int or type(judged_index) is not int:
            return self._answer(BAD_ARGUMENTS)
        session = self.sessions.get(session_id)
        if session is None:
            return self._answer(SESSION_EXPIRED)
        if session.nonce != nonce or session.last_index > judged_index:
            return self._answer(SESSION_MOVED)
        self.transaction.mark(session_id, 0)
        return self._close_session(session)

    def _answer(self, err: int) -> Result:
        """Return a result without a zxid of its own and without an effect."""
        zxid = self.transaction.zxid
        self.transaction.outcomes += (err, zxid)
        return Result(err, zxid, None, None)

    def _fail(self, err: int) -> Result:
        """Return the failure of a command that takes a zxid."""
        self.transaction.zxid += 1
        return self._answer(err)
