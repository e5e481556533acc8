"""What the integration tests have in common: three nodes of the tested system, and their order."""

from pathlib import Path

import pytest

from tests.support.node_fixtures import nodes, pytest_runtest_makereport, shared_nodes

__all__ = ["nodes", "pytest_collection_modifyitems", "pytest_runtest_makereport", "shared_nodes"]

#: The files that take longest, the longest one first: begun last, one alone would keep a core waiting.
LONGEST = (
    "up",
    "start_pages",
    "operate_pages",
    "membership",
    "broker_story",
    "transactions",
    "bad_input",
    "failing_quorum",
    "machine_pages",
    "crash_safety",
    "leader_changes",
    "admin_api",
    "backup",
    "tls",
    "service_units",
    "founding",
    "digests",
    "doctor",
    "secret_rotation",
    "rolling_update",
    "controlled_shutdown",
    "embedded_brokers",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `make test` gives files to its workers in this order."""
    place = {Path(__file__).with_name(f"test_{name}.py"): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))
