"""The pages about machines of one's own: every command runs, and three machines become a checked cluster.

Each machine is a loopback address of its own, so that ports are those of the pages. One cluster does for all
pages: what one has begun, the next goes on with, in a folder that shows the files of the first.
Source: docs/operate/install.md.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

from tests.site.commands import Walk, walk
from tests.support.nodes import REPOSITORY, eventually

DEADLINE_S = 60.0
LISTENS = "files and sockets may be open"
SERVERS = {"quorate serve": LISTENS, "quorate broker": LISTENS}
READY = "three things to try"
#: a node is down: a warning
WARNED = {"quorate doctor": 3}


def machines() -> dict[str, str]:
    """Return {address of the pages: one of loopback}; no other test listens there."""
    net = f"127.{20 + secrets.randbelow(200)}.{1 + secrets.randbelow(250)}"
    return {f"10.0.0.{each}": f"{net}.{each}" for each in ("1", "2", "3", "4", "@", "$i")}


def folder_beside(page: Walk, name: str) -> Path:
    """Return a new folder in which the files of a page are as well."""
    folder = page.folder.with_name(name)
    folder.mkdir()
    for path in page.folder.iterdir():
        if path.name not in {"bin", "output"}:
            (folder / path.name).symlink_to(path)
    return folder


def follow(page: Walk, installed: Walk) -> None:
    """Let a page's commands dial the cluster that was installed."""
    page.environment |= {
        "QUORATE_PROFILE": "prod",
        "QUORATE_PROFILE_FILE": str(installed.folder / "profiles.toml"),
    }


def told(page: Walk, command: str) -> str:
    """Return what a command prints for the reader of a page."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=page.folder,
        env=page.environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    ).stdout


def test_three_machines_become_a_cluster_and_change(tmp_path: Path) -> None:
    here = machines()
    with walk("docs/operate/install.md", tmp_path / "install", rewrites=here, runs_on=SERVERS) as installed:
        installed.run()
        follow_configure(installed)
        follow_brokers(installed, here)
        follow_members(installed, here)


def follow_configure(installed: Walk) -> None:
    folder = installed.folder.with_name("configure")
    folder.mkdir()
    for path in (installed.folder / "machine-1").iterdir():
        (folder / path.name).symlink_to(path)
    with walk("docs/operate/configure.md", folder) as page:
        follow(page, installed)
        page.run()


def follow_brokers(installed: Walk, here: dict[str, str]) -> None:
    folder = folder_beside(installed, "brokers")
    with walk("docs/operate/brokers.md", folder, rewrites=here, runs_on=SERVERS) as page:
        follow(page, installed)
        page.run("Add a broker")
        page.run("Restart brokers")
        told(page, "quorate shell --peer-secret peer.secret create /brokers/topics/broken x")
        page.run()


def follow_members(installed: Walk, here: dict[str, str]) -> None:
    folder = folder_beside(installed, "members")
    with walk("docs/operate/members.md", folder, rewrites=here, runs_on=SERVERS, codes=WARNED) as page:
        follow(page, installed)
        page.run("Members of the quorum")
        page.run("Add a node")
        eventually(lambda: "learner" not in told(page, "quorate members list"), DEADLINE_S, "node 4 votes")
        page.run("Remove a node")
        page.end("quorate serve --config machine-4/node.toml")
        installed.end("quorate serve --config machine-2/node.toml")
        page.run("Replace a lost disk")
        eventually(lambda: "learner" not in told(page, "quorate members list"), DEADLINE_S, "node 2 votes")
        page.run("Hand leadership over")
        page.run("Take a snapshot")
        page.end("quorate serve --config machine-2/node.toml")
        for each in ("broker --config machine-3", "broker --config machine-2", "broker --config machine-1"):
            installed.end(f"quorate {each}/broker.toml")
        for each in ("serve --config machine-3", "serve --config machine-1"):
            installed.end(f"quorate {each}/node.toml")
        page.run("A majority of disks is lost for good")


def test_a_lost_disk_is_replaced_by_the_command_that_is_told(tmp_path: Path) -> None:
    alone = {"quorate up": "quorate up --brokers 0"}
    waits = {"quorate up": "`quorate members replace 2`"}
    with walk("docs/operate/one-machine.md", tmp_path, rewrites=alone, runs_on=waits) as page:
        page.run("One machine: `quorate up`")
        shutil.rmtree(tmp_path / "data/node-2/data")
        page.run("A node's data are lost")
        eventually(lambda: "leader   node" in told(page, "quorate status"), DEADLINE_S, "there is a leader")
        page.run()
        ready = page.output("quorate up")
        eventually(lambda: READY in ready.read_text("utf-8"), DEADLINE_S, "all nodes are ready")
        assert told(page, "quorate members list").count(" yes ") == 3


def test_secrets_of_kubernetes_are_made(tmp_path: Path) -> None:
    with walk("docs/operate/kubernetes.md", tmp_path) as page:
        page.run()


def test_the_units_are_judged(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(REPOSITORY / "deploy")
    with walk("docs/operate/systemd.md", tmp_path) as page:
        page.run()
