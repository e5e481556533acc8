"""A transaction: one write, or a multi that applies several of them or none.

The operations of a multi see what those before them did and share one zxid; a failed one leaves no trace but
its items. writes.py says what a single write does, undo.py how it is taken back.

Source: ZooKeeper 3.9 PrepRequestProcessor (multi), MultiOperationRecord; DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from typing import Final

from quorum.core.codes import (
    ANY_VERSION,
    BAD_ARGUMENTS,
    BAD_VERSION,
    FLAG_CONTAINER,
    MARSHALLING_ERROR,
    NO_AUTH,
    NO_NODE,
    OK,
    OP_CHECK,
    OP_CREATE,
    OP_CREATE2,
    OP_CREATE_CONTAINER,
    OP_CREATE_TTL,
    OP_DELETE,
    OP_ERROR,
    OP_SET_DATA,
    PERM_READ,
    RUNTIME_INCONSISTENCY,
)
from quorum.core.paths import is_valid_path
from quorum.core.records import ACL_MASK, acl_field_of, version_of
from quorum.core.results import MultiItem, WriteValue
from quorum.core.tree import record_of
from quorum.core.undo import release_removed, roll_back, totals_of
from quorum.core.writes import Command, Writes

#: in the digest of results, before (position of the failing operation, its error, zxid) of a failed multi
FAILED_MULTI: Final = -1000


class TreeTransaction(Writes):
    """The writes on one tree, and the multis that are made of them."""

    def check(self, command: Command) -> int | None:
        """Apply [13, path, version], an operation of a multi only."""
        if len(command) != 3:
            return BAD_ARGUMENTS
        _, path, expected = command
        if type(path) is not str or not path or type(expected) is not int:
            return BAD_ARGUMENTS
        node = self.tree.get(path)
        if node is None:
            return NO_NODE if is_valid_path(path) else BAD_ARGUMENTS
        record = node if isinstance(node, bytes) else record_of(node)
        field = acl_field_of(record)
        if field & ACL_MASK and not self.tree.acls.permits(field & ACL_MASK, PERM_READ, self.identities):
            return NO_AUTH
        return None if expected in (ANY_VERSION, version_of(record)) else BAD_VERSION

    def multi(self, command: Command) -> list[MultiItem] | int:
        """Apply [14, [operation, …]]: all or nothing; returns an item per operation.

        An operation that ZooKeeper could not even read fails the request as a whole.
        """
        if len(command) != 2:
            return BAD_ARGUMENTS
        _, operations = command
        if type(operations) is not list:
            return BAD_ARGUMENTS
        tree = self.tree
        before = totals_of(tree)
        undo = self._undo = []
        items: list[MultiItem] = []
        known = _OPERATIONS
        for operation in operations:
            value: WriteValue | int
            try:
                op, write = known[operation[0]]
            except (LookupError, TypeError):
                value = MARSHALLING_ERROR
            else:
                value = write(self, operation)
            if isinstance(value, int):
                self._undo = None
                roll_back(tree, self.sessions, undo, before)
                self.events.clear()
                if not all(map(self._is_readable, operations)):
                    return MARSHALLING_ERROR
                self.outcomes += (FAILED_MULTI, len(items), value)
                return _failed_items(len(items), value, len(operations))
            items.append((op, OK, value))
        self._undo = None
        release_removed(tree, undo)
        return items

    def _is_readable(self, operation: object) -> bool:
        """Tell whether ZooKeeper could read an operation of a multi at all; else the multi is malformed."""
        if type(operation) is not list or not operation:
            return False
        op = operation[0]
        if type(op) is not int or op not in _OPERATIONS:
            return False
        if op not in {OP_CREATE, OP_CREATE2, OP_CREATE_CONTAINER} or len(operation) != 5:
            return True
        flags = operation[4]
        # a TTL belongs to the larger ones, and there is none
        return type(flags) is int and 0 <= flags <= FLAG_CONTAINER


#: {operation of a multi: (what its item is called, what applies it)}; of no object, so that a state which
#: another one replaces goes at once, without the cycle collector
_OPERATIONS: Final = {
    OP_CREATE: (OP_CREATE, TreeTransaction.create),
    OP_CREATE2: (OP_CREATE2, TreeTransaction.create2),
    OP_CREATE_CONTAINER: (OP_CREATE2, TreeTransaction.create_container),
    OP_CREATE_TTL: (OP_CREATE2, TreeTransaction.create_ttl),
    OP_DELETE: (OP_DELETE, TreeTransaction.delete),
    OP_SET_DATA: (OP_SET_DATA, TreeTransaction.set_data),
    OP_CHECK: (OP_CHECK, TreeTransaction.check),
}


def _failed_items(position: int, error: int, count: int) -> list[MultiItem]:
    """Return the items of a failed multi: OK before the failing operation, an inconsistency after it."""
    return [
        (OP_ERROR, OK if index < position else error if index == position else RUNTIME_INCONSISTENCY, None)
        for index in range(count)
    ]
