"""The wheel and the sdist of this checkout, and fresh environments with the wheel in them.

`build` asks the backend of pyproject.toml. `beside` makes an environment that borrows the packages of the
tests and needs no network; `resolved` one with packages of its own, from a package index. Both keep the
checkout off the import path.
Source: docs/internals/releasing.md.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.broker_cluster import SHORT_SESSIONS, BrokerCluster, BrokerProcess
from tests.support.nodes import REPOSITORY, QuorateNodes, clean_environment

#: What a process of the installed wheel gets: no override of settings, nothing else on the import path.
ENVIRONMENT = clean_environment(PYTHONPATH="")
#: What an installation may take, with downloads.
INSTALL_DEADLINE_S = 280.0


@dataclass(frozen=True)
class Distributions:
    """Both files of a release."""

    wheel: Path
    sdist: Path


def run(command: Sequence[str | Path], folder: Path, deadline_s: float = INSTALL_DEADLINE_S) -> str:
    """Run a command that must succeed; return its standard output.

    Raises:
        AssertionError: it failed; has both of its outputs.
    """
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree into an empty folder."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build(folder: Path) -> Distributions:
    """Build this checkout's wheel and sdist into an empty folder."""
    run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], REPOSITORY)
    (sdist,) = folder.glob("*.tar.gz")
    return Distributions(build_wheel(REPOSITORY, folder), sdist)


@dataclass(frozen=True)
class Environment:
    """A virtual environment that has the wheel."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin/python")

    @property
    def quorate(self) -> str:
        """The command that the wheel installed."""
        return str(self.folder / "bin/quorate")

    def quorate_prints(self, *words: str) -> str:
        """Run `quorate` to its end; return what it printed."""
        return run([self.quorate, *words], self.folder)

    def python_prints(self, program: str) -> str:
        """Run a program to its end; return what it printed."""
        return run([self.python, "-c", program], self.folder)


def beside(folder: Path, wheel: Path) -> Environment:
    """Install the wheel alone; all else comes from the environment that runs the tests."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    environment = Environment(folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment.python]
    run([*pip, "install", "--no-deps", "--no-index", "--quiet", wheel], folder)
    purelib = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # a path alone: what an editable install added to that folder is not looked at
    (Path(purelib) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def resolved(folder: Path, wheel: Path, python: str, extras: Sequence[str], resolution: str) -> Environment:
    """Install the wheel with dependencies of its own.

    Args:
        folder: where the environment is made.
        wheel: the wheel, of this checkout.
        python: a version such as "3.12", or the path of an interpreter.
        extras: those of the wheel.
        resolution: of uv: "highest", or "lowest-direct" for the lowest versions that pyproject.toml allows.
    """
    uv = str(Path(sys.executable).with_name("uv"))
    run([uv, "venv", "--quiet", "--no-python-downloads", "--python", python, folder], folder.parent)
    environment = Environment(folder)
    install = [uv, "pip", "install", "--quiet", "--python", environment.python]
    chosen = [f"--extra={extra}" for extra in extras]
    # what the wheel asks for counts as direct only where it is named so
    run([*install, "--resolution", resolution, *chosen, "--requirements", "pyproject.toml"], REPOSITORY)
    run([*install, "--no-deps", wheel], REPOSITORY)
    run([uv, "pip", "check", "--quiet", "--python", environment.python], REPOSITORY)
    return environment


class InstalledNodes(QuorateNodes):
    """Nodes that run the command of an environment."""

    def __init__(self, environment: Environment, *, folder: Path, nodes: int = 1) -> None:
        """Choose ports and write the configuration files; start() runs the processes."""
        variables = {"PYTHONPATH": ""}
        super().__init__(nodes=nodes, settings=SHORT_SESSIONS, folder=folder, environment=variables)
        self._quorate = environment.quorate

    def command(self, node_id: int, *options: str) -> list[str]:
        """Command line of one node."""
        return [self._quorate, "serve", "--config", str(self.nodes[node_id].config_path), *options]


class InstalledCluster(BrokerCluster):
    """A node and a broker that run the command of an environment."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        """Choose ports and write the configuration; start() runs the processes."""
        super().__init__(brokers=1, folder=folder, quorum=InstalledNodes(environment, folder=folder))
        self._quorate = environment.quorate

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the broker's process."""
        return ENVIRONMENT

    def command(self, broker: BrokerProcess) -> list[str]:
        """Write the broker's configuration; return the command that runs it."""
        super().command(broker)
        return [self._quorate, "broker", "--config", str(broker.config_path)]
