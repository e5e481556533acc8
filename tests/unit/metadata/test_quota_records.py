"""Znodes of quotas: paths, names, values, and what else they hold."""

from __future__ import annotations

import json

import pytest

from quorum.metadata.broker_settings import CONNECTIONS_PER_ADDRESS, check_broker_changes
from quorum.metadata.errors import InvalidBrokerSettingError, MetadataDecodeError
from quorum.metadata.quota_records import (
    DEFAULT,
    QuotaEntity,
    QuotaKind,
    changed_quotas,
    quota_entity_at,
    quota_parents,
    quota_path,
    quota_text,
    read_quotas,
)
from quorum.metadata.setting_changes import SettingChanges

PATHS = {
    QuotaEntity("al ice~*", None): "/config/users/al%20ice%7E%2A",
    QuotaEntity(DEFAULT, None): "/config/users/<default>",
    QuotaEntity("<default>", None): "/config/users/%3Cdefault%3E",
    QuotaEntity("u", "a/b"): "/config/users/u/clients/a%2Fb",
    QuotaEntity(DEFAULT, DEFAULT): "/config/users/<default>/clients/<default>",
    QuotaEntity(None, "app.1-x_"): "/config/clients/app.1-x_",
    QuotaEntity(None, DEFAULT): "/config/clients/<default>",
}


@pytest.mark.parametrize(("entity", "path"), PATHS.items())
def test_names_are_escaped_as_kafka_does(entity: QuotaEntity, path: str) -> None:
    assert quota_path(entity) == path
    assert quota_entity_at(path) == entity


@pytest.mark.parametrize(
    "path", ["/config/users", "/config/users/u/clients", "/config/users/a b", "/config/topics/t", "/config"]
)
def test_other_znodes_hold_no_quotas(path: str) -> None:
    assert quota_entity_at(path) is None


def test_what_must_exist_above_a_users_client() -> None:
    assert quota_parents(QuotaEntity("u", "c")) == ["/config/users/u", "/config/users/u/clients"]
    assert quota_parents(QuotaEntity("u", None)) == quota_parents(QuotaEntity(None, "c")) == []


def test_a_change_keeps_the_other_keys() -> None:
    data = json.dumps({"version": 1, "config": {"SCRAM-SHA-256": "x", "producer_byte_rate": "1"}}).encode()
    changes = {QuotaKind.PRODUCE: None, QuotaKind.FETCH: "5"}
    changed = json.loads(changed_quotas("/config/users/u", data, changes))
    assert changed == {"version": 1, "config": {"SCRAM-SHA-256": "x", "consumer_byte_rate": "5"}}


def test_a_znode_without_a_value_has_no_quotas() -> None:
    assert read_quotas("/config/users/u", b"") == {}
    with pytest.raises(MetadataDecodeError):
        read_quotas("/config/users/u", b"{")


def test_a_rate_that_is_none_does_not_count() -> None:
    texts = {"producer_byte_rate": "x", "consumer_byte_rate": "0", "controller_mutation_rate": "1.5E2"}
    data = json.dumps({"version": 1, "config": texts}).encode()
    assert read_quotas("/config/clients/c", data) == {QuotaKind.MUTATION: 150.0}


def test_rates_are_written_as_kafka_writes_them() -> None:
    assert quota_text(QuotaKind.PRODUCE, 1048576.0) == "1048576"
    assert quota_text(QuotaKind.MUTATION, 10) == "10.0"
    assert quota_text(QuotaKind.FETCH, float(2**63)) == str(2**63 - 1)


@pytest.mark.parametrize("text", ["0", "2147483648", "-1", "many"])
def test_connections_of_an_address_are_a_number(text: str) -> None:
    with pytest.raises(InvalidBrokerSettingError) as refused:
        check_broker_changes(SettingChanges({CONNECTIONS_PER_ADDRESS: text}))
    assert "give a whole number from 1 to 2147483647, which is no limit" in str(refused.value)
