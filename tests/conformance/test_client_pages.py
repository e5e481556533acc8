"""The programs of docs/clients, as a reader copies them: each runs, and prints what its page says.

Programs with the addresses of `quorate up` run on embedded brokers and their quorum. Those with names of
machines run on a node with TLS and SASL. What the pages say of Spark is run in tests/pipeline.
Source: docs/internals/site.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.config.sasl_users import user_line
from tests.site.programs import Program, files, write
from tests.support.certificates import Authority
from tests.support.java import java_command
from tests.support.kafka_jars import kafka_java_command
from tests.support.nodes import clean_environment
from tests.support.secure_nodes import SecureNodes

DEADLINE_S = 60.0
NODES = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
BROKERS = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
SECURE_NODES = "node-1.example:2182,node-2.example:2182,node-3.example:2182"
PASSWORD = "wonderland"


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3) as running:
        yield running


def shown(page: str, suffix: str, *, secure: bool = False) -> list[str]:
    """Names of a page's programs in one language: those for nodes with TLS and SASL, or the others."""
    return [
        each.name
        for each in files(f"docs/clients/{page}.md")
        if each.name.endswith(suffix) and (".example:" in each.text) is secure
    ]


def check(command: Sequence[str], program: Program, folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{program.name}: {done.stdout}\n{done.stderr}"
    assert program.prints is None or done.stdout == program.prints, f"{program.name}: {done.stderr}"


def run(
    page: str, suffix: str, folder: Path, addresses: dict[str, str], command: Callable[..., list[str]]
) -> None:
    """Run a page's programs in one language, in the order in which they stand there."""
    names = shown(page, suffix, secure=SECURE_NODES in addresses)
    assert names, "the page shows none"
    for program in write(f"docs/clients/{page}.md", folder, addresses):
        if program.name in names:
            check(command(folder / program.name), program, folder)


@pytest.mark.parametrize("page", ["kazoo", "python", "kafka"])
def test_python_programs_run(brokers: BlockingBrokers, tmp_path: Path, page: str) -> None:
    addresses = {NODES: brokers.hosts, BROKERS: brokers.bootstrap}
    run(page, ".py", tmp_path, addresses, lambda file: [sys.executable, file.name])


@pytest.mark.parametrize("page", ["java", "curator"])
def test_java_programs_run(brokers: BlockingBrokers, tmp_path: Path, page: str) -> None:
    run(page, ".java", tmp_path, {NODES: brokers.hosts}, java_command)


def test_kafkas_java_client_runs_with_the_settings_of_the_page(
    brokers: BlockingBrokers, tmp_path: Path
) -> None:
    run(
        "kafka",
        ".java",
        tmp_path,
        {BROKERS: brokers.bootstrap},
        lambda file: kafka_java_command(file, tmp_path),
    )


# -- nodes with TLS and SASL ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Its folder is `pki` of the pages."""
    made = Authority(tmp_path_factory.mktemp("secure") / "pki")
    made.both("alice")
    return made


@pytest.fixture(scope="module")
def nodes(authority: Authority) -> Iterator[SecureNodes]:
    users = authority.folder.parent / "users.digest"
    users.touch(mode=0o600)
    users.write_text(f"{user_line('alice', PASSWORD)}\n")
    with SecureNodes(authority, security={"sasl_users_file": str(users)}) as running:
        yield running


def in_secure(authority: Authority, folder: Path) -> None:
    """Put into a folder what the pages' programs read there."""
    (folder / "pki").symlink_to(authority.folder)
    (folder / "alice.password").write_text(PASSWORD)


@pytest.mark.parametrize("page", ["kazoo", "python"])
def test_python_programs_prove_themselves(
    nodes: SecureNodes, authority: Authority, tmp_path: Path, page: str
) -> None:
    in_secure(authority, tmp_path)
    addresses = {SECURE_NODES: nodes.secure_hosts}
    run(page, ".py", tmp_path, addresses, lambda file: [sys.executable, file.name])


def test_a_java_program_proves_itself(nodes: SecureNodes, authority: Authority, tmp_path: Path) -> None:
    in_secure(authority, tmp_path)

    def command(file: Path) -> list[str]:
        java, *rest = java_command(file)
        return [java, "@tls.options", "@sasl.options", *rest]

    run("java", ".java", tmp_path, {SECURE_NODES: nodes.secure_hosts}, command)
