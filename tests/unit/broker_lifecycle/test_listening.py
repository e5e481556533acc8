"""What a broker publishes of its ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from broker.config.broker import broker_config
from broker.lifecycle.listening import AnnouncedView, Listeners
from quorum.config.certificates import Certificates
from tests.support.node_configs import free_ports


class NoView:
    """Shows nothing."""

    def status(self) -> Mapping[str, object]:
        return {}

    def readiness(self) -> tuple[bool, str]:
        return True, ""

    def metrics(self) -> Iterable[Metric]:
        return []


@pytest.mark.parametrize(
    ("listened", "expected"), [("0.0.0.0", "http://broker-1.example"), ("127.0.0.1", "http://127.0.0.1")]
)
async def test_an_admin_port_on_all_addresses_is_published_under_the_brokers_name(
    tmp_path: Path, listened: str, expected: str
) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(32 * "s")
    (tmp_path / "tokens").touch(mode=0o600)
    (tmp_path / "tokens").write_text(f"ann admin {32 * 't'}\n")
    client, broker, admin = free_ports(3)
    config = broker_config(
        {
            "broker": {"id": 1, "data_dir": "data"},
            "listen": {
                "client": f"127.0.0.1:{client}",
                "broker": f"127.0.0.1:{broker}",
                "admin": f"{listened}:{admin}",
            },
            "advertised": {"broker": "broker-1.example:9192"},
            "security": {
                "peer_secret_file": "secret",
                "admin_tokens_file": "tokens",
                "admin_behind_proxy": True,
            },
        },
        tmp_path,
    )
    certificates = Certificates(config.tls, config.tls_used())
    listeners = Listeners(config, [32 * "s"], AnnouncedView(), certificates)
    await listeners.start_admin(NoView())
    try:
        assert listeners.advertised().admin == f"{expected}:{admin}"
    finally:
        await listeners.stop()
