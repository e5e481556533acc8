"""What a turn of the engine has begun and not finished: decides nothing, and is forgotten with the turn."""

from __future__ import annotations


class TurnState:
    """Flags of the turn under way."""

    __slots__ = ("collecting", "due", "sent", "submitted", "wanted")

    def __init__(self) -> None:
        self.wanted = False  #: something waits to be carried out
        self.due = False  #: a later turn of the loop sees to it
        self.collecting = False  #: what is called at this moment ends in a pump
        self.sent = False  #: messages wait to be flushed
        self.submitted = False  #: the journal was given something
