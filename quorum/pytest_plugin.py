"""A pytest fixture for the tests of other projects: a real quorum in the test process, ready to use.

The fixture `quorate_quorum` yields `.hosts` (for any ZooKeeper client) and `.admin_urls`. It is found through
the entry point `pytest11`, so a project needs only to depend on `quorate`. Two settings in the project's
pytest configuration:

    quorate_nodes = 3               how many nodes
    quorate_scope = function        how long one quorum lives: function, class, module, package or session

With the default scope every test has an empty quorum of its own; a wider one is faster, and tests then see
each other's nodes. The quorum is imported only when a test asks for it; a test run that does not is not
slowed down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from quorum.local import Ensemble

Scope = Literal["session", "package", "module", "class", "function"]
#: as quorum.local bounds them
_NODES = tuple(str(nodes) for nodes in range(1, 10))
_SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings."""
    parser.addini("quorate_nodes", "nodes of the fixture quorate_quorum", default="3")
    parser.addini(
        "quorate_scope", "how long one quorate_quorum lives: " + ", ".join(_SCOPES), default="function"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse settings that make no quorum, before any test runs.

    Raises:
        UsageError: names the setting, its value and what would do.
    """
    scope, nodes = str(config.getini("quorate_scope")), str(config.getini("quorate_nodes"))
    if scope not in _SCOPES:
        raise pytest.UsageError(f"quorate_scope = {scope!r}: give one of {', '.join(_SCOPES)}")
    if nodes not in _NODES:
        raise pytest.UsageError(
            f"quorate_nodes = {nodes!r}: give a whole number from {_NODES[0]} to {_NODES[-1]}"
        )


def _scope(fixture_name: str, config: pytest.Config) -> Scope:  # noqa: ARG001 - pytest passes both
    return cast("Scope", str(config.getini("quorate_scope")))


@pytest.fixture(scope=_scope)
def quorate_quorum(pytestconfig: pytest.Config) -> Iterator[Ensemble]:
    """A running quorum on free ports, on an event loop of its own thread: a blocking client works."""
    from quorum.local import ensemble_in_thread

    with ensemble_in_thread(nodes=int(pytestconfig.getini("quorate_nodes"))) as running:
        yield running
