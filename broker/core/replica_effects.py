"""What a replica's machine wants done, as values; who steps it carries them out in their order.

Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

from typing import NamedTuple

from broker.core.partition import ProposeIsr
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch


class AnswerProduces(NamedTuple):
    """Answer the produces that wait for the high watermark."""

    #: Those whose records end here or before; None: all, and those that wait for their turn in the log.
    up_to: int | None
    error_code: ErrorCode


class WakeFetches(NamedTuple):
    """Let waiting fetches read the partition again."""

    of_followers: bool
    of_consumers: bool
    #: Worth an answer without records.
    is_news: bool = False


class LookAtDeletions(NamedTuple):
    """Let waiting deletions compare the replicas' log starts again."""


class WriteIsr(NamedTuple):
    """Write a change of the ISR; completed by IsrWritten, IsrRefused or IsrFound with its number."""

    number: int
    proposal: ProposeIsr


class IsrChanged(NamedTuple):
    """The quorum has another ISR, by this leader's own change."""

    isr: tuple[int, ...]
    has_joined: bool


class Follow(NamedTuple):
    """Fetch from this leader, and from no other."""

    leader: int
    leader_epoch: LeaderEpoch


class Unfollow(NamedTuple):
    """Fetch no longer."""


class TakeRecords(NamedTuple):
    """Append the records of the answer; completed by Copied or WriteFailed at once."""


class TruncateTo(NamedTuple):
    """Cut the log here, if the machine still awaits it then; completed by Truncated."""

    offset: int


class StartAt(NamedTuple):
    """Drop the whole log and begin here, if the machine still awaits it then; completed by Truncated."""

    offset: int


class RaiseStart(NamedTuple):
    """Delete the records before this offset."""

    offset: int


class BackOff(NamedTuple):
    """Pause before the next fetch of this partition."""

    #: Monotonic; the pause begins then.
    since_ms: int


class ReadUpTo(NamedTuple):
    """Answer a fetch with records below this offset."""

    offset: int


class Diverge(NamedTuple):
    """Answer a fetch with the place where the logs diverge."""

    leader_epoch: int
    end_offset: int


class ReadElsewhere(NamedTuple):
    """Send a consumer to this broker."""

    broker_id: int


class RefuseWith(NamedTuple):
    """Answer the request with an error."""

    error_code: ErrorCode


class Close(NamedTuple):
    """Let the replica go; its log stays. The machine is over."""


class SetAside(NamedTuple):
    """Let the replica go: its log is that of an older topic; a new replica takes the decision."""


ReplicaEffect = (
    AnswerProduces
    | WakeFetches
    | LookAtDeletions
    | WriteIsr
    | IsrChanged
    | Follow
    | Unfollow
    | TakeRecords
    | TruncateTo
    | StartAt
    | RaiseStart
    | BackOff
    | ReadUpTo
    | Diverge
    | ReadElsewhere
    | RefuseWith
    | Close
    | SetAside
)
