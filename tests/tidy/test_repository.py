"""The repository's files agree with the code: pins, codes, documented commands, the sample configuration."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kazoo.exceptions
import pytest

from quorum import __version__, errors
from quorum.cli import main as cli
from quorum.config.node import SECTIONS, load_node_config
from quorum.core import codes
from tests.site.commands import steps
from tests.tidy.rules import REPOSITORY

#: those whose commands no test runs
DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "deploy/spark/README.md"),
    *(f"docs/internals/{each}.md" for each in ("benchmarks", "conformance", "releasing")),
    *(f"docs/internals/{each}.md" for each in ("reliability", "simulation")),
)


def project() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def unpinned(requirements: list[str]) -> list[str]:
    """Requirements that name neither an exact version nor a range that ends."""
    return [each for each in requirements if "==" not in each and "<" not in each]


def test_pysyncobj_is_pinned_exactly_and_everything_else_has_an_end() -> None:
    metadata = project()["project"]
    assert "pysyncobj==0.3.17" in metadata["dependencies"]
    listed = [
        *metadata["dependencies"],
        *(each for extra in metadata["optional-dependencies"].values() for each in extra),
    ]
    # the pipeline's floor for protobuf comes from Spark, which sets no end either
    # and an extra that includes another one has the ends of that one
    assert unpinned(listed) == [
        "quorate[backup,brokers,certs,oauth,spark]",
        "quorate[brokers]",
        "protobuf>=6.33.5",
    ]


def test_an_open_requirement_is_found() -> None:
    assert unpinned(["a>=1", "b>=1,<2", "c==3", "d"]) == ["a>=1", "d"]


def missing_codes(numbers: dict[str, int]) -> list[str]:
    """Names of codes that the table lacks, or calls differently."""
    return [
        name
        for name, number in numbers.items()
        if number not in errors.CODES or errors.CODES[number].name != name.replace("_", "")
    ]


def test_every_code_that_is_used_stands_in_the_table() -> None:
    names = "OK RUNTIME_INCONSISTENCY UNIMPLEMENTED BAD_ARGUMENTS NO_NODE NO_AUTH BAD_VERSION NODE_EXISTS"
    names += " NOT_EMPTY NO_CHILDREN_FOR_EPHEMERALS SESSION_EXPIRED INVALID_ACL SESSION_MOVED AUTH_FAILED"
    names += " NEW_CONFIG_NO_QUORUM RECONFIG_IN_PROGRESS NOT_READ_ONLY NO_WATCHER QUOTA_EXCEEDED"
    assert missing_codes({name: getattr(codes, name) for name in names.split()}) == []


def test_every_code_that_a_client_knows_stands_in_the_table() -> None:
    # kazoo numbers one code of its own; -117 was never one of ZooKeeper's
    assert {code for code in kazoo.exceptions.EXCEPTIONS if code not in errors.CODES} <= {-117}


def test_a_missing_or_misnamed_code_is_found() -> None:
    assert missing_codes({"NO_NODE": -101, "NONODES": -101, "NEW": -1000}) == ["NONODES", "NEW"]


def commands_in(text: str) -> list[str]:
    """The commands of a document that begin with make or quorate."""
    return [step.command for step in steps(text) if re.match(r"(make|quorate)\b", step.command)]


def unknown_commands(lines: list[str], targets: set[str]) -> list[str]:
    """Commands whose make target, subcommand or option does not exist."""
    unknown = []
    for line in lines:
        program, *words = shlex.split(line)
        if program == "make":
            if not {word for word in words if "=" not in word} <= targets:
                unknown.append(line)
            continue
        try:
            cli.build_parser().parse_args(words)
        except errors.UsageError:
            unknown.append(line)
    return unknown


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documented_commands_exist(document: str) -> None:
    lines = commands_in((REPOSITORY / document).read_text())
    assert lines, f"{document} shows no command"
    assert unknown_commands(lines, make_targets()) == []


def test_the_readme_begins_with_the_two_commands() -> None:
    assert commands_in((REPOSITORY / "README.md").read_text())[:2] == ["make up", "make test"]


def test_an_unknown_command_is_found() -> None:
    lines = (
        "make up",
        "make tset",
        "quorate up --nodes 3  # three",
        "quorate up --node-count 3",
        "quorate dwon",
    )
    text = "```console\n" + "".join(f"$ {line}\n" for line in lines) + "```\n"
    assert unknown_commands(commands_in(text), make_targets()) == [
        "make tset",
        "quorate up --node-count 3",
        "quorate dwon",
    ]


def test_the_sample_configuration_shows_every_key_with_its_default(tmp_path: Path) -> None:
    sample = REPOSITORY / "deploy/node.toml"
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(32 * "s")
    config = load_node_config(sample, {}, {"security.peer_secret_file": str(secret)})
    shown = tomllib.loads(sample.read_text())
    # The tables below [tls] have the keys of [tls].
    assert list(shown) == [section for section in SECTIONS if "." not in section]
    for section, declared in SECTIONS.items():
        if declared is None or "." in section:
            continue
        fields = dataclasses.fields(declared)
        assert list(shown[section]) == [field.name for field in fields]
        for field in fields:
            if field.default is not dataclasses.MISSING:
                values = config.tls["tls"] if section == "tls" else getattr(config, section)
                assert getattr(values, field.name) == field.default


def test_ci_runs_the_same_command_as_a_developer() -> None:
    script = REPOSITORY / ".ci/run"
    assert os.access(script, os.X_OK)
    assert "make test" in script.read_text()
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("file", "written"),
    [
        ("deploy/helm/quorate/Chart.yaml", r'^(?:version|appVersion): "?([^"\n]+)'),
        ("deploy/kubernetes.yaml", r'image: "?quorate:([^"\n]+)'),
        ("docs/operate/install.md", r"^\$ VERSION=(.+)"),
        ("docs/operate/kubernetes.md", r"tag of its version, as `(.+?)`"),
    ],
)
def test_what_names_the_version_names_that_of_the_code(file: str, written: str) -> None:
    found = re.findall(written, (REPOSITORY / file).read_text(), re.MULTILINE)
    assert set(found) == {__version__}


def test_shell_scripts_are_well_formed() -> None:
    for script in REPOSITORY.glob("deploy/**/*.sh"):
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


_REFERENCE = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


def missing_references(text: str) -> list[str]:
    """Return the tests that a document names and that do not exist."""
    missing = []
    for path, name in _REFERENCE.findall(text):
        place = REPOSITORY / path
        if not place.exists() or (name and f"def {name}(" not in place.read_text()):
            missing.append(f"{path}::{name}" if name else path)
    return missing


@pytest.mark.parametrize(
    "document",
    [
        "DIVERGENCES.md",
        "docs/internals/consensus.md",
        "docs/concepts/guarantees.md",
        "docs/operate/upgrade.md",
    ],
)
def test_the_tests_that_a_document_names_exist(document: str) -> None:
    text = (REPOSITORY / document).read_text()
    assert len(_REFERENCE.findall(text)) >= 10
    assert missing_references(text) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    text = "`tests/tidy/test_repository.py::test_nowhere`, `tests/nowhere.py`, `tests/tidy`"
    assert missing_references(text) == ["tests/tidy/test_repository.py::test_nowhere", "tests/nowhere.py"]
