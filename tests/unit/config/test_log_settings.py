"""[log]: what a file may say of the log, and the sentence for what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config.broker import BrokerConfig, broker_config
from quorum.config.node import NodeConfig, node_config
from quorum.errors import ConfigError


def config(kind: str, folder: Path, log: dict[str, Any]) -> NodeConfig | BrokerConfig:
    secret = folder / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    base: dict[str, dict[str, Any]] = {"security": {"peer_secret_file": str(secret)}, "log": log}
    if kind == "node":
        node = {"id": 1, "cluster": "c", "data_dir": "data"}
        return node_config(base | {"node": node, "members": {"1": "127.0.0.1:2281"}}, folder)
    return broker_config(base | {"broker": {"id": 1, "data_dir": "data"}}, folder)


@pytest.mark.parametrize("kind", ["node", "broker"])
def test_the_log_is_text_unless_json_is_said(tmp_path: Path, kind: str) -> None:
    assert config(kind, tmp_path, {}).log.format == "text"
    assert config(kind, tmp_path, {"format": "json"}).log.format == "json"


@pytest.mark.parametrize("kind", ["node", "broker"])
@pytest.mark.parametrize("given", ["xml", "JSON", "", "json\n"])
def test_another_format_is_refused_with_those_there_are(tmp_path: Path, kind: str, given: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(kind, tmp_path, {"format": given})
    (problem,) = refused.value.problems
    assert problem.field == "log.format"
    assert given.strip() in problem.value
    assert '"text" or "json"' in f"{problem.problem} {problem.remedy}"
