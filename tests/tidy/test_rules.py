"""Every rule of rules.py holds for the whole project, and finds a violation that is planted."""

from __future__ import annotations

import pytest

from tests.tidy import rules

CORE = "quorum/core/tree.py"
RAFT_CORE = "quorum/raft/core/votes.py"
TEST = "tests/unit/test_x.py"


@pytest.mark.parametrize(
    "rule", [rules.import_direction, rules.core_purity, rules.no_pickle, rules.sizes, rules.no_sleep]
)
def test_the_code_keeps_the_rule(rule: rules.Rule) -> None:
    assert rules.findings(rule, rules.python_files()) == []


@pytest.mark.parametrize("rule", [rules.no_marks, rules.no_machine_paths])
def test_all_text_keeps_the_rule(rule: rules.Rule) -> None:
    assert rules.findings(rule, rules.text_files()) == []


def test_the_walk_sees_the_project() -> None:
    files = set(rules.text_files())
    assert {
        "quorum/errors.py",
        "controller/__init__.py",
        "tests/tidy/rules.py",
        "README.md",
        "Makefile",
    } <= files
    assert {"pyproject.toml", ".ci/run", "deploy/node.toml"} <= files


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("quorum/errors.py", "from quorum.config.node import load_node_config"),
        ("quorum/core/tree.py", "import quorum.raft.core.log"),
        ("quorum/raft/journal/journal.py", "from quorum.server import frontend"),
        ("quorum/raft/core/log.py", "from quorum.raft.journal.journal import Journal"),
        ("quorum/raft/core/log.py", "from ..journal import Journal"),
        ("quorum/server/frontend.py", "from quorum import node"),
        ("quorum/wire/jute.py", "def f():\n    from quorum.client import Client"),
        ("quorum/admin/client.py", "import broker.log"),
        ("quorum/unheard_of.py", ""),
        ("controller/runtime/term.py", "from pipeline import jobs"),
        ("controller/runtime/term.py", "from quorum.raft.journal.journal import Journal"),
        ("controller/runtime/term.py", "from quorum import node"),
        ("broker/server/listener.py", "import pipeline"),
        ("pipeline/__init__.py", "import controller.core"),
        ("pipeline/__init__.py", "from broker.log import segments"),
        ("quorum/raft/journal/writer.py", "from quorum.raft.peers.codec import pack"),
        ("broker/log/segment.py", "from broker.replication import manager"),
        ("broker/unheard_of/x.py", ""),
        ("quorum/node/digests.py", "from quorum.node.replica import Replica"),
        ("quorum/node/replica.py", "from quorum.server.frontend import Frontend"),
    ],
)
def test_an_import_against_the_direction_is_found(path: str, text: str) -> None:
    assert len(rules.import_direction(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("quorum/core/tree.py", "from quorum.core.paths import split_path"),
        ("quorum/core/tree.py", "from .paths import split_path"),
        ("quorum/client/client.py", "from quorum import __version__"),
        (
            "controller/runtime/store.py",
            "from quorum.metadata.records import Broker\nfrom quorum.client import Client",
        ),
        ("broker/replication/manager.py", "import controller.messages"),
        ("tests/unit/test_x.py", "import quorum.node.node"),
    ],
)
def test_an_import_in_the_right_direction_is_not(path: str, text: str) -> None:
    assert rules.import_direction(path, text) == []


def test_the_map_has_no_cycle_and_a_planted_one_is_found() -> None:
    assert rules.cycles(rules.ALLOWED) == []
    planted = rules.ALLOWED | {"quorum.raft.journal": {"raft.engine"}}
    assert {"quorum.raft.journal", "quorum.raft.engine"} <= set(rules.cycles(planted))


@pytest.mark.parametrize("path", [CORE, RAFT_CORE, "broker/core/partition.py"])
@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import os.path",
        "from random import Random",
        "from asyncio import Queue",
        "import logging",
        "import msgpack",
        "from quorum.errors import QuorateError",
        "order = hash('a')",
        "print('x')",
        "def f(x):\n    return {id(x): x}",
    ],
)
def test_an_impure_core_is_found(path: str, text: str) -> None:
    assert len(rules.core_purity(path, text)) == 1


def test_a_pure_core_is_not_found_and_the_shell_may_be_impure() -> None:
    pure = "import struct\nfrom dataclasses import dataclass\nfrom quorum.core.paths import split_path\n"
    assert rules.core_purity(CORE, pure) == []
    assert rules.core_purity("quorum/raft/journal/journal.py", "import os\nimport logging") == []


@pytest.mark.parametrize(
    "text", ["import pickle", "from pickle import loads", "import shelve", "import marshal as m"]
)
def test_pickle_is_found(text: str) -> None:
    assert len(rules.no_pickle("quorum/raft/peers/codec.py", text)) == 1


def test_long_functions_and_files_are_found() -> None:
    body = "    pass\n"
    assert rules.sizes(CORE, "def f():\n" + 69 * body) == []
    assert len(rules.sizes(CORE, "def f():\n" + 70 * body)) == 1
    assert len(rules.sizes(CORE, "class C:\n    async def f(self):\n" + 70 * ("    " + body))) == 1
    assert rules.sizes(CORE, 500 * "\n") == []
    assert len(rules.sizes(CORE, 501 * "\n")) == 1
    assert rules.sizes(TEST, 800 * "\n") == []
    assert len(rules.sizes(TEST, 801 * "\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)",
        "import time\ntime.sleep(delay)",
        "from time import sleep\nsleep(0.1)",
        "from time import sleep as pause\npause(0.1)",
        "import time as clock\nclock.sleep(1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.5)",
    ],
)
def test_a_sleep_in_a_test_is_found(text: str) -> None:
    assert len(rules.no_sleep(TEST, text)) == 1
    assert rules.no_sleep("quorum/launcher/supervisor.py", text) == []


def test_a_sleep_of_zero_and_the_one_waiting_place_are_allowed() -> None:
    assert rules.no_sleep(TEST, "import asyncio\nasync def f():\n    await asyncio.sleep(0)") == []
    waiting = "import time\ndef eventually():\n    time.sleep(0.02)\ndef other():\n    time.sleep(0.02)"
    assert rules.no_sleep("tests/support/nodes.py", waiting) == [
        (5, "sleeps; wait for a condition with a deadline instead")
    ]


def test_marks_and_machine_paths_are_found() -> None:
    assert len(rules.no_marks(CORE, "x = 1  # TO" + "DO: later")) == 1
    assert rules.no_marks(CORE, "x = 1  # a method of its own") == []
    assert len(rules.no_machine_paths("README.md", "see " + "/home" + "/ada/quorate")) == 1
    assert rules.no_machine_paths("README.md", "https://example.org/home/ada, data/home/x, /tmp/one") == []
