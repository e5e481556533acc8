"""The wheel and the sdist: what is in them, and that the installed wheel serves, with no checkout in sight.

Source: docs/internals/releasing.md.
"""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum import __version__
from tests.support.distributions import (
    ENVIRONMENT,
    Distributions,
    Environment,
    InstalledNodes,
    beside,
    build,
    build_wheel,
    run,
)
from tests.support.nodes import REPOSITORY

PACKAGES = ("broker", "controller", "pipeline", "quorum")
#: Where Spark finds data sources: top-level modules.
AUTOLOAD = "pipeline/autoload/"
LIBRARIES = "quorum/console/static/LIBRARIES.md"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return beside(tmp_path_factory.mktemp("installed") / "venv", built.wheel)


@pytest.fixture(scope="module")
def node(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledNodes]:
    nodes = InstalledNodes(installed, folder=tmp_path_factory.mktemp("node"))
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def kept_files() -> set[str]:
    """What git keeps of the checkout, or would keep once it is added."""
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], REPOSITORY)
    return {name for name in listed.split("\0") if name and (REPOSITORY / name).exists()}


def wheel_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> email.message.Message:
    return email.message_from_bytes(wheel_files(wheel)[f"quorate-{__version__}.dist-info/METADATA"])


def test_the_wheel_has_every_file_of_the_packages(built: Distributions) -> None:
    kept = {name for name in kept_files() if name.split("/")[0] in PACKAGES and name != LIBRARIES}
    found = {name for name in wheel_files(built.wheel) if ".dist-info/" not in name}
    assert found == {name.removeprefix(AUTOLOAD) for name in kept}
    assert {f"{package}/py.typed" for package in PACKAGES} <= found


def test_the_wheel_has_the_licences_of_vendored_files(built: Distributions) -> None:
    files = wheel_files(built.wheel)
    licences = f"quorate-{__version__}.dist-info/licenses"
    assert files[f"{licences}/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()
    assert files[f"{licences}/{LIBRARIES}"] == (REPOSITORY / LIBRARIES).read_bytes()
    assert metadata(built.wheel)["License-Expression"] == "Apache-2.0 AND MIT"


def test_the_wheel_has_the_version_of_the_code(built: Distributions) -> None:
    assert metadata(built.wheel)["Version"] == __version__
    assert built.sdist.name == f"quorate-{__version__}.tar.gz"


def test_the_metadata_are_of_a_version_that_the_release_workflow_uploads(built: Distributions) -> None:
    """Twine before 7, which the pinned action has, refuses what is later than 2.4."""
    with tarfile.open(built.sdist) as archive:
        information = archive.extractfile(f"quorate-{__version__}/PKG-INFO")
        assert information is not None
        of_sdist = email.message_from_bytes(information.read())
    assert of_sdist["Metadata-Version"] == metadata(built.wheel)["Metadata-Version"] == "2.4"


def test_the_contents_of_the_wheel_pass_the_checker(built: Distributions) -> None:
    checker = Path(sys.executable).with_name("check-wheel-contents")
    assert run([checker, built.wheel], REPOSITORY).endswith(": OK\n")


def test_the_sdist_has_what_git_keeps(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert found == kept_files() | {"PKG-INFO"}


def test_the_sdist_makes_the_same_wheel(built: Distributions, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build_wheel(tmp_path / built.sdist.name.removesuffix(".tar.gz"), tmp_path / "dist")
    assert again.read_bytes() == built.wheel.read_bytes()


def test_the_installed_command_is_the_wheels(installed: Environment) -> None:
    assert installed.quorate_prints("--version") == f"quorate {__version__}\n"
    program = f"import {', '.join(PACKAGES)}\nfor each in ({', '.join(PACKAGES)}): print(each.__file__)"
    places = installed.python_prints(program).splitlines()
    assert len(places) == len(PACKAGES)
    assert all(place.startswith(str(installed.folder)) for place in places)


def test_the_installed_command_has_those_of_entry_points(installed: Environment) -> None:
    assert "usage: quorate topics" in installed.quorate_prints("topics", "--help")


def test_an_installed_node_is_alive(node: InstalledNodes) -> None:
    assert node.get(1, "/livez")[0] == 200
    assert f'version="{__version__}"'.encode() in node.get(1, "/metrics")[1]


def test_the_installed_console_serves_its_files(installed: Environment, node: InstalledNodes) -> None:
    command = [installed.quorate, "console", "--port", "0", "--admin", node.admin_url(1)]
    with subprocess.Popen(
        command, cwd=installed.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as console:
        try:
            assert console.stdout is not None
            url = console.stdout.readline().removeprefix("console: ").strip()
            for file in (REPOSITORY / LIBRARIES).parent.iterdir():
                if file.name != Path(LIBRARIES).name:
                    with urllib.request.urlopen(f"{url.rstrip('/')}/{file.name}") as answer:
                        assert answer.read() == file.read_bytes(), file.name
        finally:
            console.terminate()
