"""The reader's side of a fetch session beside the leader's: both know the same after every answer."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from broker.core.asked_session import AskedSession
from broker.core.fetch_sessions import INITIAL_EPOCH, NO_SESSION, FetchSession, FetchSessions, next_epoch
from broker.core.fetched import FetchPosition
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.unit.broker_core.test_fetch_sessions import FOLLOWER, KEYS

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("want", "want", "leave", "fetch", "fetch", "lose request", "lose answer", "evict")),
        st.sampled_from(KEYS),
        st.integers(0, 3),
    ),
    max_size=60,
)


class Leader:
    """Has one session of the reader at a time."""

    def __init__(self, slots: int) -> None:
        self.sessions: FetchSessions = FetchSessions(
            slots, itertools.count(1), on_due=lambda *_: None, on_end=lambda *_: None
        )
        self.session: FetchSession | None = None

    def take(self, asked: AskedSession[PartitionKey, FetchPosition]) -> tuple[ErrorCode, int]:
        """Take the reader's next request, and return the answer's error and session."""
        changes = asked.request()
        if changes.epoch == INITIAL_EPOCH:
            self.session = self.sessions.begin(FOLLOWER, 0, size=len(changes.named), by_id=True)
        else:
            found = self.sessions.take(changes.session_id, changes.epoch, FOLLOWER, 0, by_id=True)
            if isinstance(found, ErrorCode):
                return found, NO_SESSION
            self.session = found
        if self.session is None:
            return ErrorCode.NONE, NO_SESSION
        self.session.name(changes.named)
        self.sessions.forget(self.session, changes.forgotten)
        return ErrorCode.NONE, self.session.session_id


@given(STEPS, st.integers(0, 1))
def test_leader_and_reader_agree_after_every_answer(
    steps: list[tuple[str, PartitionKey, int]], slots: int
) -> None:
    leader, wanted = Leader(slots), dict[PartitionKey, FetchPosition]()
    asked: AskedSession[PartitionKey, FetchPosition] = AskedSession()
    for what, key, offset in steps:
        match what:
            case "want":
                wanted[key] = FetchPosition(offset, 1)
            case "leave":
                wanted.pop(key, None)
                asked.leave(key)
            case "evict" if leader.session is not None:
                leader.sessions.end(leader.session)
            case "lose request":
                asked.request()
                asked.begin()
            case "lose answer":
                leader.take(asked)
                asked.begin()
            case "fetch":
                for each, position in wanted.items():
                    asked.want(each, position)
                error_code, session_id = leader.take(asked)
                if asked.is_refused(error_code):
                    assert (asked.epoch, len(asked)) == (INITIAL_EPOCH, 0)
                    continue
                assert error_code is ErrorCode.NONE
                if leader.session is not None and session_id != NO_SESSION:
                    assert leader.session.partitions == wanted
                asked.advance(session_id)


def test_the_last_epoch_is_followed_by_the_first() -> None:
    asked: AskedSession[str, int] = AskedSession()
    asked.want("p", 1)
    asked.request()
    asked.advance(7)
    asked.epoch = 2**31 - 1
    asked.advance(7)
    assert (asked.epoch, next_epoch(1)) == (1, 2)


def test_a_refusal_of_a_first_request_is_no_end_of_a_session() -> None:
    asked: AskedSession[str, int] = AskedSession()
    asked.want("p", 1)
    assert not asked.is_refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    assert asked.get("p") == 1
