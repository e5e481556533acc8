"""Fixtures of the suites that start real nodes: three of the tested system; their output in failure reports.

A suite takes them by importing them into its conftest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.support.nodes import System, output_sections, start_system

__all__ = ["nodes", "pytest_runtest_makereport", "shared_nodes"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what running nodes printed to the report of a failed test."""
    report = yield
    if report.failed:
        report.sections.extend(output_sections())
    return report


@pytest.fixture(scope="module")
def shared_nodes() -> Iterator[System]:
    """Three nodes for all tests of a module; use `nodes`, which repairs them between tests."""
    with start_system() as system:
        yield system


@pytest.fixture
def nodes(shared_nodes: System) -> System:
    """Three running, ready nodes; a test may kill any of them."""
    for node_id in shared_nodes.node_ids:
        if not shared_nodes.running(node_id):
            shared_nodes.start_node(node_id)
    shared_nodes.wait_ready()
    return shared_nodes
