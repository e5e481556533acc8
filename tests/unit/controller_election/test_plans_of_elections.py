"""The decisions of elections, registrations and batching, with every reading that leads to them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.chunks import chunk_by_size
from controller.election.plans import (
    CONTROLLER_OFFICE,
    Adopt,
    Compete,
    HeldBy,
    Register,
    Won,
    named_broker,
    plan_election,
    plan_registration,
)
from quorum.client import Stat
from quorum.metadata.errors import BrokerIdInUseError, MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration, next_version
from quorum.metadata.reading import NodeView
from quorum.metadata.records import BrokerRecord, ControllerRecord
from tests.support.metadata_records import mandate_of

ME, MY_SESSION, OTHER_SESSION = 1, 0x11, 0x22
ELECTION_ZXID = 50


def node(data: bytes, *, owner: int = 0, version: int = 0, czxid: int = 10, mzxid: int = 10) -> NodeView:
    stat = Stat(
        czxid=czxid,
        mzxid=mzxid,
        pzxid=czxid,
        ctime_ms=0,
        mtime_ms=0,
        version=version,
        cversion=0,
        aversion=0,
        ephemeral_owner=owner,
        data_length=len(data),
        children_count=0,
    )
    return NodeView(data, stat)


def controller(broker_id: int, owner: int, *, version: int = 0, czxid: int = ELECTION_ZXID) -> NodeView:
    return node(ControllerRecord(broker_id, 0).encode(), owner=owner, version=version, czxid=czxid)


EPOCH = node(b"4", version=4, mzxid=ELECTION_ZXID)
REGISTERED = node(b"{}", owner=OTHER_SESSION)


def test_without_a_controller_the_candidate_competes_for_the_next_epoch() -> None:
    plan = plan_election(CONTROLLER_OFFICE, ME, MY_SESSION, EPOCH, None, None)
    assert plan == Compete(None, mandate_of(ME, 5, 5), 4, "there is no controller")


def test_a_controller_of_this_session_from_the_same_multi_as_the_epoch_is_mine() -> None:
    plan = plan_election(CONTROLLER_OFFICE, ME, MY_SESSION, EPOCH, controller(ME, MY_SESSION), None)
    assert plan == Won(mandate_of(ME, 4, 4))


def test_a_live_registered_controller_is_left_alone() -> None:
    plan = plan_election(CONTROLLER_OFFICE, ME, MY_SESSION, EPOCH, controller(2, OTHER_SESSION), REGISTERED)
    assert plan == HeldBy(2)


@pytest.mark.parametrize(
    ("found", "registration", "reason"),
    [
        (node(b"rubbish", owner=OTHER_SESSION), None, "malformed"),
        (node(b"", owner=MY_SESSION), None, "malformed"),
        (controller(-1, OTHER_SESSION), None, "names nobody"),
        (controller(ME, OTHER_SESSION), REGISTERED, "earlier life"),
        (controller(2, OTHER_SESSION), None, "does not own"),
        (controller(2, 0x33), REGISTERED, "does not own"),
        (controller(2, 0), node(b"{}", owner=0), "not ephemeral"),
        (controller(2, OTHER_SESSION, version=1), REGISTERED, "overwritten"),
        # Mine by session, but no longer as it was elected: somebody forces a new election.
        (controller(ME, MY_SESSION, version=1), None, "overwritten"),
        (controller(2, MY_SESSION), None, "does not own"),
        # Mine by session, but the epoch was changed behind it.
        (controller(ME, MY_SESSION, czxid=ELECTION_ZXID - 1), None, "earlier"),
    ],
)
def test_a_controller_that_does_not_count_is_replaced_in_the_election(
    found: NodeView, registration: NodeView | None, reason: str
) -> None:
    plan = plan_election(CONTROLLER_OFFICE, ME, MY_SESSION, EPOCH, found, registration)
    assert isinstance(plan, Compete)
    assert plan.delete_version == found.stat.version
    assert plan.mandate == mandate_of(ME, 5, 5)
    assert plan.epoch_version == 4
    assert reason in plan.reason


def test_no_election_guesses_an_epoch() -> None:
    # No request could carry the epoch after the last one.
    for value in (b"four", b"2147483647"):
        with pytest.raises(MetadataDecodeError, match="/controller_epoch"):
            plan_election(CONTROLLER_OFFICE, ME, MY_SESSION, node(value), None, None)


def test_the_broker_to_look_up_is_the_one_that_a_wellformed_controller_names() -> None:
    assert named_broker(None, CONTROLLER_OFFICE) is None
    assert named_broker(node(b"x"), CONTROLLER_OFFICE) is None
    assert named_broker(controller(-1, 1), CONTROLLER_OFFICE) is None
    assert named_broker(controller(0, 1), CONTROLLER_OFFICE) == 0


def test_versions_wrap_and_skip_any() -> None:
    assert [next_version(version) for version in (0, 2**31 - 1, -2)] == [1, -(2**31), 0]


def registration(incarnation: str | None, owner: int) -> NodeView:
    record = BrokerRecord(
        "h", 1, ("PLAINTEXT://h:1",), {"PLAINTEXT": "PLAINTEXT"}, 0, incarnation=incarnation
    )
    return node(record.encode(), owner=owner, version=3, czxid=77)


def test_a_free_id_is_registered() -> None:
    assert plan_registration(ME, MY_SESSION, "aa", None, None, is_signed=False) == Register(None, None)
    assert plan_registration(ME, MY_SESSION, "aa", None, node(b"{}", version=6), is_signed=False) == Register(
        None, 6
    )


def test_a_registration_of_this_session_is_adopted_with_its_generation() -> None:
    assert plan_registration(
        ME, MY_SESSION, "aa", registration("aa", MY_SESSION), node(b""), is_signed=True
    ) == Adopt(BrokerGeneration(77))


def test_an_earlier_life_is_replaced() -> None:
    plan = plan_registration(
        ME, MY_SESSION, "aa", registration("aa", OTHER_SESSION), node(b"", version=6), is_signed=True
    )
    assert plan == Register(3, 6)


@pytest.mark.parametrize("owner", [OTHER_SESSION, MY_SESSION])
def test_what_a_stranger_registered_is_replaced(owner: int) -> None:
    for found in (
        registration("bb", owner),
        registration("aa", owner),
        node(b"rubbish", version=3, owner=owner),
    ):
        plan = plan_registration(ME, MY_SESSION, "aa", found, node(b"", version=6), is_signed=False)
        assert plan == Register(3, 6)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (registration("bb", OTHER_SESSION), "bb"),
        (registration("bb", MY_SESSION), "bb"),
        (registration(None, OTHER_SESSION), "without an incarnation"),
        (node(b"rubbish", owner=OTHER_SESSION), "unreadable"),
    ],
)
def test_another_broker_under_this_id_is_left_alone(found: NodeView, named: str) -> None:
    with pytest.raises(BrokerIdInUseError, match="broker id 1 is taken") as caught:
        plan_registration(ME, MY_SESSION, "aa", found, None, is_signed=True)
    assert named in str(caught.value)
    assert caught.value.remedy


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 9), st.integers(1, 120))
def test_chunks_keep_order_and_both_limits(sizes: list[int], operations_max: int, bytes_max: int) -> None:
    items = list(enumerate(sizes))
    chunks = list(chunk_by_size(((item, item[1]) for item in items), operations_max, bytes_max))
    assert [item for chunk in chunks for item in chunk] == items
    for chunk in chunks:
        assert 1 <= len(chunk) <= operations_max
        assert len(chunk) == 1 or sum(size for _, size in chunk) <= bytes_max
    for chunk, following in pairwise(chunks):
        full = len(chunk) == operations_max
        assert full or sum(size for _, size in chunk) + following[0][1] > bytes_max
