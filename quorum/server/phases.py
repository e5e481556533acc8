"""The phases of a client connection, and what moves it from one to another.

Pure. `MOVES` is the whole table: what it has not cannot happen, and raises where it does all the same.
Source: docs/internals/moves.md, the diagram made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a connection is in its life."""

    #: it has said nothing yet
    GREETING = "greeting"
    #: the answer to a four-letter word is written, or awaited
    SPEAKING = "speaking"
    #: its handshake is in the log
    BINDING = "binding"
    OPEN = "open"
    #: a change of members is under way for it: only pings are answered
    CHANGING = "changing"
    #: its last request was read
    LEAVING = "leaving"
    #: nothing is answered any more, what is queued still leaves
    FINISHED = "finished"
    CLOSED = "closed"


class Move(Enum):
    """What happens to a connection."""

    WORD_ASKED = "a word is asked"
    HANDSHAKE_SUBMITTED = "its handshake goes to the log"
    SESSION_GRANTED = "it has a session"
    CHANGE_ASKED = "it asks for a change of members"
    CHANGE_ANSWERED = "the change is applied or refused"
    LAST_READ = "its last request is read"
    ENDED = "nothing more is promised to it"
    LOST = "the transport is gone"


# A member of an enum costs a look-up; this one lies on the path of every request.
OPEN: Final = Phase.OPEN

#: {(phase, what happens): phase}
MOVES: Final[Mapping[tuple[Phase, Move], Phase]] = {
    (Phase.GREETING, Move.WORD_ASKED): Phase.SPEAKING,
    (Phase.GREETING, Move.HANDSHAKE_SUBMITTED): Phase.BINDING,
    # One that may only read needs no log.
    (Phase.GREETING, Move.SESSION_GRANTED): Phase.OPEN,
    (Phase.BINDING, Move.SESSION_GRANTED): Phase.OPEN,
    (Phase.OPEN, Move.CHANGE_ASKED): Phase.CHANGING,
    (Phase.CHANGING, Move.CHANGE_ANSWERED): Phase.OPEN,
    (Phase.OPEN, Move.LAST_READ): Phase.LEAVING,
    **{(phase, Move.ENDED): Phase.FINISHED for phase in Phase if phase is not Phase.CLOSED},
    (Phase.CLOSED, Move.ENDED): Phase.CLOSED,
    **{(phase, Move.LOST): Phase.CLOSED for phase in Phase if phase is not Phase.CLOSED},
}
