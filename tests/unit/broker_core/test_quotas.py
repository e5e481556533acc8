"""Quotas of clients: which one counts, how long it throttles, and that rates hold over time."""

from __future__ import annotations

import pytest

from broker.core.quotas.clients import ClientQuotas, QuotaClient
from broker.core.quotas.rates import THROTTLE_MS_MAX, Bucket, Left, Spending, Window
from quorum.metadata.quota_records import DEFAULT, QuotaEntity, QuotaKind, precedence

ALICE = QuotaClient("alice", "app")
KIND = QuotaKind.PRODUCE


@pytest.fixture
def quotas() -> ClientQuotas:
    return ClientQuotas()


def test_the_order_is_kafkas(quotas: ClientQuotas) -> None:
    entities = [entity for entity, _ in precedence(*ALICE)]
    assert entities == [
        QuotaEntity("alice", "app"),
        QuotaEntity("alice", DEFAULT),
        QuotaEntity("alice", None),
        QuotaEntity(DEFAULT, "app"),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, None),
        QuotaEntity(None, "app"),
        QuotaEntity(None, DEFAULT),
    ]
    for rate, entity in enumerate(entities, 1):
        quotas.set_quotas(entity, {KIND: float(rate)})
    for rate, entity in enumerate(entities, 1):
        found = quotas.quota_of(KIND, ALICE)
        assert found is not None
        assert found[1] == rate
        quotas.set_quotas(entity, {})
    assert quotas.quota_of(KIND, ALICE) is None
    assert not quotas.limits(KIND)


def test_a_quota_of_the_default_user_hides_every_client_id(quotas: ClientQuotas) -> None:
    quotas.set_quotas(QuotaEntity(None, "app"), {KIND: 1.0})
    quotas.set_quotas(QuotaEntity(DEFAULT, None), {KIND: 2.0})
    assert quotas.quota_of(KIND, ALICE) == (("alice", ""), 2.0)


def test_a_quota_of_another_kind_hides_nothing(quotas: ClientQuotas) -> None:
    quotas.set_quotas(QuotaEntity("alice", None), {QuotaKind.FETCH: 1.0})
    quotas.set_quotas(QuotaEntity(None, "app"), {KIND: 2.0})
    assert quotas.quota_of(KIND, ALICE) == (("", "app"), 2.0)


def test_clients_of_a_user_share_its_rate_and_users_of_a_default_do_not(quotas: ClientQuotas) -> None:
    quotas.set_quotas(QuotaEntity(DEFAULT, None), {KIND: 100.0})
    assert quotas.used(KIND, ALICE, 1000, 0) == 0
    assert quotas.used(KIND, QuotaClient("alice", "other"), 500, 0) == 5000
    assert quotas.used(KIND, QuotaClient("bob", "app"), 1000, 0) == 0
    assert quotas.throttled_ms[KIND] == 5000


def test_ten_seconds_worth_passes_at_once() -> None:
    window = Window()
    assert window.record(1000, 100, 0) == 0
    assert window.record(1, 100, 0) == 10
    # After it the rate is what it may be.
    assert window.record(0, 100, 10) == 0


@pytest.mark.parametrize("size", [10, 300, 1000, 1100])
def test_a_producer_that_waits_has_its_rate(size: int) -> None:
    window, rate = Window(), 100
    sent, now_ms, ends = 0, 0.0, []
    while now_ms < 200_000:
        sent += size
        throttle_ms = window.record(size, rate, now_ms)
        assert throttle_ms <= THROTTLE_MS_MAX
        now_ms += throttle_ms or 1
        ends.append((now_ms, sent))
    # What passes at once at first does not count.
    start = next(each for each in ends if each[0] > 44_000)
    passed_s = (ends[-1][0] - start[0]) / 1000
    assert (ends[-1][1] - start[1]) / passed_s == pytest.approx(rate, rel=0.1)


def test_what_cannot_be_waited_for_at_once_is_waited_for_later() -> None:
    window = Window()
    assert window.record(3300, 100, 0) == THROTTLE_MS_MAX
    # 33 seconds' worth: eleven are over, ten may pass at once.
    assert window.record(0, 100, 11_000) == THROTTLE_MS_MAX
    assert window.record(0, 100, 22_000) == 1000
    assert not window.is_clear(32_999)
    assert window.is_clear(33_000)
    assert Window().is_clear(0)


def test_a_debt_is_over_in_time_without_counting_it_down() -> None:
    window = Window()
    window.record(1e9, 1, 0)
    assert not window.is_clear(0.9e12)
    assert window.is_clear(1.1e12)


@pytest.mark.parametrize(("size", "least"), [(10, 95), (100, 95), (300, 90), (1100, 75)])
def test_a_consumer_that_waits_has_its_rate(size: int, least: int) -> None:
    window, rate = Window(), 100
    now_ms, passed = 0.0, []
    while now_ms < 300_000:
        left, throttle_ms = window.left(rate, now_ms)
        if not throttle_ms:
            # as much as there may be, and one batch at least
            count = max(int(left / size), 1)
            passed.append((now_ms, count * size))
            throttle_ms = window.record(count * size, rate, now_ms)
        assert throttle_ms <= THROTTLE_MS_MAX
        now_ms += throttle_ms or 1
    late = [each for each in passed if each[0] > 44_000]
    # Batches of many seconds' worth leave some of it unused.
    assert least <= sum(size for _, size in late) / 256 <= 110


def test_what_is_left_is_what_may_be_fetched() -> None:
    window = Window()
    assert window.left(100, 0) == Left(1000)
    window.record(900, 100, 0)
    assert window.left(100, 0) == Left(100)
    window.record(200, 100, 0)
    assert window.left(100, 0) == Left(0, 1000)
    # Nothing was used meanwhile.
    assert window.left(100, 999) == Left(0, 1)
    assert window.left(100, 11_000) == Left(1000)


def test_mutations_are_a_bucket() -> None:
    bucket = Bucket()
    # Eleven seconds' worth, and more as long as there was no debt before.
    assert bucket.spend(30, 2, 5000, is_strict=True) == Spending(0)
    assert bucket.spend(1, 2, 5000, is_strict=True) == Spending(4000, passes=False)
    assert bucket.spend(1, 2, 9000, is_strict=True) == Spending(0)
    assert bucket.spend(1, 2, 9000, is_strict=False) == Spending(1000)
    # What was not done is given back.
    assert bucket.spend(-2, 2, 9000, is_strict=False) == Spending(0)
    assert not bucket.is_clear(19_000)
    assert bucket.is_clear(20_000)


def test_a_debt_of_mutations_is_waited_for_in_pieces() -> None:
    bucket = Bucket()
    assert bucket.spend(1000, 1, 0, is_strict=False) == Spending(THROTTLE_MS_MAX)
    assert bucket.spend(1, 1, 989_000 - 1, is_strict=True) == Spending(1, passes=False)
    assert bucket.spend(1, 1, 989_000, is_strict=True) == Spending(0)


def test_invented_client_ids_take_bounded_room() -> None:
    quotas = ClientQuotas(tracked_max=10)
    quotas.set_quotas(QuotaEntity(None, DEFAULT), dict.fromkeys(QuotaKind, 1.0))
    for number in range(100):
        client = QuotaClient("u", f"invented-{number}")
        quotas.used(KIND, client, 20, number)
        quotas.used(QuotaKind.FETCH, client, 20, number)
        quotas.mutates(client, 20, number, is_strict=True)
        assert quotas.tracked() <= 30
    # The last one is still known.
    assert quotas.used(KIND, QuotaClient("u", "invented-99"), 20, 100) > 20_000 / 2
    # Those that are idle go.
    quotas.used(KIND, QuotaClient("u", "later"), 1, 1_000_000)
    assert quotas.tracked() == 21


def test_a_client_without_a_quota_may_fetch_anything(quotas: ClientQuotas) -> None:
    quotas.set_quotas(QuotaEntity(None, "app"), {QuotaKind.FETCH: 100.0})
    assert quotas.fetch_left(ALICE, 0) == Left(1000)
    assert quotas.fetch_left(QuotaClient("alice", "other"), 0).amount > 2**63
    assert quotas.used(QuotaKind.FETCH, QuotaClient("alice", "other"), 10**9, 0) == 0
