"""What the conformance tests have in common: three nodes of the tested system."""

from tests.support.node_fixtures import nodes, pytest_runtest_makereport, shared_nodes

__all__ = ["nodes", "pytest_runtest_makereport", "shared_nodes"]
