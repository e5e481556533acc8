"""A session as the log knows it: its id, where it is attached, what it owns.

Hard state only. When a session was last heard of, and when it is to expire, is the leader's soft state and
elsewhere; here is just the index that an expiry must not be older than. Passwords are derived from the
session key in the shell.
Source: docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations


class Session:
    """One client session."""

    __slots__ = ("ephemerals", "last_index", "node_id", "nonce", "session_id", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, node_id: int, nonce: int, last_index: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        #: the attachment: the node and the connection whose commands count
        self.node_id = node_id
        self.nonce = nonce
        #: log index of the last entry in which the session was created, attached or wrote
        self.last_index = last_index
        #: {path: None} of the ephemerals that the session owns; their order is free (closing sorts them)
        self.ephemerals: dict[str, None] = {}
