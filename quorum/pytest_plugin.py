"""Pytest fixtures for the tests of other projects: a real quorum, or real brokers, in the test process.

`quorate_quorum` yields `.hosts` (for any ZooKeeper client) and `.admin_urls`. `quorate_brokers` yields
`.bootstrap` (for any Kafka client), `.hosts`, `.admin_urls`, and `stop(id)`, `kill(id)` and `start(id)` of
one broker; topics are created when a client asks for them. Both are found through the entry point
`pytest11`, so a project needs only to depend on `quorate`, or `quorate[brokers]`. Settings in the project's
pytest configuration:

    quorate_nodes = 3               nodes of quorate_quorum
    quorate_broker_count = 1        brokers of quorate_brokers, over a quorum of one node
    quorate_scope = function        how long one of them lives: function, class, module, package or session

With the default scope every test has an empty cluster of its own; a wider one is faster, and tests then see
each other's data. Nothing is imported before a test asks for it; a test run that does not is not slowed down.
Brokers are another package: they are found through the entry point group `quorate.embedded`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal, Protocol, cast

import pytest

if TYPE_CHECKING:
    from quorum.local import Ensemble


class Brokers(Protocol):
    """What `quorate_brokers` yields."""

    #: For a Kafka client, "127.0.0.1:40001,127.0.0.1:40002".
    bootstrap: str
    #: For a ZooKeeper client.
    hosts: str
    #: The brokers' HTTP ports.
    admin_urls: tuple[str, ...]

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run; returns when it serves clients."""

    def stop(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does."""

    def kill(self, broker_id: int) -> None:
        """Stop a broker as SIGKILL does: its session ends by its timeout, about a second."""


Scope = Literal["session", "package", "module", "class", "function"]
#: as quorum.local bounds them
_COUNTS = tuple(str(count) for count in range(1, 10))
_SCOPES = ("function", "class", "module", "package", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings."""
    parser.addini("quorate_nodes", "nodes of the fixture quorate_quorum", default="3")
    parser.addini("quorate_broker_count", "brokers of the fixture quorate_brokers", default="1")
    parser.addini(
        "quorate_scope", "how long one quorum or cluster lives: " + ", ".join(_SCOPES), default="function"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse settings that make no quorum, before any test runs.

    Raises:
        UsageError: names the setting, its value and what would do.
    """
    scope = str(config.getini("quorate_scope"))
    if scope not in _SCOPES:
        raise pytest.UsageError(f"quorate_scope = {scope!r}: give one of {', '.join(_SCOPES)}")
    for name in ("quorate_nodes", "quorate_broker_count"):
        count = str(config.getini(name))
        if count not in _COUNTS:
            raise pytest.UsageError(
                f"{name} = {count!r}: give a whole number from {_COUNTS[0]} to {_COUNTS[-1]}"
            )


def _scope(fixture_name: str, config: pytest.Config) -> Scope:  # noqa: ARG001 - pytest passes both
    return cast("Scope", str(config.getini("quorate_scope")))


@pytest.fixture(scope=_scope)
def quorate_quorum(pytestconfig: pytest.Config) -> Iterator[Ensemble]:
    """A running quorum on free ports, on an event loop of its own thread: a blocking client works."""
    from quorum.local import ensemble_in_thread

    with ensemble_in_thread(nodes=int(pytestconfig.getini("quorate_nodes"))) as running:
        yield running


@pytest.fixture(scope=_scope)
def quorate_brokers(pytestconfig: pytest.Config) -> Iterator[Brokers]:
    """Running brokers over a quorum, on an event loop of their own thread: a blocking client works.

    Raises:
        UsageError: the extra `brokers` is not installed.
    """
    found = [entry for entry in entry_points(group="quorate.embedded") if entry.name == "brokers"]
    if not found or importlib.util.find_spec("kio") is None:
        raise pytest.UsageError("quorate_brokers needs brokers: pip install 'quorate[brokers]'")
    count = int(pytestconfig.getini("quorate_broker_count"))
    with found[0].load().brokers_in_thread(count) as running:
        yield running
