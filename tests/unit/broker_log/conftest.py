"""The log directory of a test, on a disk whose power never fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker_log.samples import Broker


@pytest.fixture(autouse=True)
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses what the kernel has: fsyncs would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "data")
    yield made
    made.directory.abandon()
