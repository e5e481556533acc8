"""broker.toml: every key is documented with its default, and what is wrong is named with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.config.broker import BrokerConfig, broker_config, load_broker_config
from broker.config.listeners import what_is_open
from quorum.config.address import Address, parse_address
from quorum.config.node import load_node_config
from quorum.errors import ConfigError
from quorum.metadata.topic_settings import TopicSettings
from tests.tidy.rules import REPOSITORY


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "peer.secret"
    file.touch(mode=0o600)
    file.write_text("s" * 32)
    return file


def minimal(secret: Path, **sections: dict[str, object]) -> BrokerConfig:
    base: dict[str, dict[str, object]] = {
        "broker": {"id": 1, "data_dir": "d"},
        "security": {"peer_secret_file": str(secret)},
    }
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return broker_config(base, secret.parent)


def test_an_open_transaction_alerts_before_the_longest_time_out(secret: Path) -> None:
    rules = (REPOSITORY / "deploy" / "observability" / "brokers-alerts.yml").read_text(encoding="utf-8")
    (limit_s,) = re.findall(r"expr: quorate_transaction_oldest_open_seconds > (\d+)$", rules, re.MULTILINE)
    # It has to last for a minute.
    longest_ms = minimal(secret).transactions.transaction_max_timeout_ms
    assert (int(limit_s) + 60) * 1000 < longest_ms


def test_the_documented_file_has_every_key_with_its_default(tmp_path: Path, secret: Path) -> None:
    text = (REPOSITORY / "deploy" / "broker.toml").read_text(encoding="utf-8")
    file = tmp_path / "broker.toml"
    file.write_text(text.replace("data/peer.secret", str(secret)).replace("data/broker-1", "d"))
    documented = load_broker_config(file)
    hosts = ["127.0.0.1:2181", "127.0.0.1:2182", "127.0.0.1:2183"]
    assert documented == minimal(secret, quorum={"hosts": hosts})
    assert documented.topics == TopicSettings()


def test_the_environment_overrides_and_nodes_ignore_it(tmp_path: Path, secret: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(f'[broker]\nid = 1\ndata_dir = "d"\n[security]\npeer_secret_file = "{secret}"\n')
    environ = {"QUORATE_BROKER_LISTEN_CLIENT": "127.0.0.1:1", "QUORATE_NODE_ID": "7"}
    assert load_broker_config(file, environ).listen.client == Address("127.0.0.1", 1)
    node = tmp_path / "node.toml"
    node.write_text(
        '[node]\nid = 1\ncluster = "c"\ndata_dir = "n"\n[members]\n1 = "127.0.0.1:2281"\n'
        f'[security]\npeer_secret_file = "{secret}"\n'
    )
    assert load_node_config(node, {"QUORATE_BROKER_LISTEN_CLIENT": "127.0.0.1:1"}).node.id == 1


@pytest.mark.parametrize(
    ("section", "key", "value", "part"),
    [
        ("broker", "idd", 1, "did you mean 'id'"),
        ("broker", "id", -1, "out of range"),
        ("listen", "broker", "127.0.0.1:9092", "has the port of listen.client"),
        ("advertised", "client", "0.0.0.0:9092", "names no machine"),
        ("listen", "client", "0.0.0.0:9092", 'set advertised.client, as "HOST:9092"'),
        ("listen", "broker", "[::]:9192", 'set advertised.broker, as "HOST:9192"'),
        ("listen", "listeners", ["SASL_SSL://0.0.0.0:9"], 'as ["SASL_SSL://HOST:9"]'),
        ("advertised", "listeners", ["SASL_SSL://0.0.0.0:9"], "is advertised, and names no machine"),
        ("security", "super_users", ["admin"], 'give a list of principals, as ["User:admin"]'),
        ("topics", "retention_ms", "soon", "is not a whole number"),
        ("topics", "message_timestamp_type", "LogTime", "one of CreateTime, LogAppendTime"),
        ("dial", "one", "127.0.0.1:1", "is not a broker id"),
        ("quorum", "hosts", [], "is not a list"),
        ("topics", "segment_bytes", 1048575, "below limits.segment_bytes_min"),
        ("limits", "frame_bytes_max", 1, "out of range"),
        ("limits", "connections_max_idle_ms", 1, "out of range"),
        ("limits", "connections_per_address_max", -1, "out of range"),
        ("limits", "received_bytes_total_max", 50 * 1024 * 1024, "is below limits.frame_bytes_max"),
        ("limits", "unread_bytes_total_max", 1, "out of range"),
        ("security", "peer_secret_file", "nowhere", "cannot be read"),
    ],
)
def test_what_is_wrong_is_named(secret: Path, section: str, key: str, value: object, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        minimal(secret, **{section: {key: value}})
    assert f"{section}.{key}" in str(caught.value)
    assert part in f"{caught.value.message} {caught.value.remedy}"


def test_a_broker_may_listen_everywhere_and_advertise_a_name(secret: Path) -> None:
    config = minimal(
        secret,
        listen={"client": "0.0.0.0:9092", "broker": "[::]:9192"},
        advertised={"client": "kafka.example.com:9092", "broker": "10.0.0.1:9192"},
    )
    assert config.advertised_broker() == Address("10.0.0.1", 9192)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff" * 32, "is no UTF-8"),
        (b"a" * 32 + b"\nshort\n", "has a secret of 5 bytes; each has at least 16"),
    ],
)
def test_each_secret_of_a_file_is_long_enough(secret: Path, content: bytes, problem: str) -> None:
    secret.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        minimal(secret)


@pytest.mark.parametrize(
    ("address", "has_access_lists", "is_open"),
    [("127.0.0.1:9092", False, False), ("10.0.0.1:9092", False, True), ("10.0.0.1:9092", True, False)],
)
def test_a_port_where_everybody_may_do_everything_is_named(
    address: str, has_access_lists: bool, is_open: bool
) -> None:
    told = what_is_open(parse_address(address), has_access_lists=has_access_lists)
    assert (f"listen.client {address} is not on loopback" in told) is is_open
