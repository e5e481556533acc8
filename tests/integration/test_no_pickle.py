"""Nothing in a running node unpickles: pickle's loading functions raise there, and the cluster works all the
same.

The nodes run with a sitecustomize that replaces pickle.loads, pickle.load and their C versions. They take
writes, lose their leader, recover from their journals, and none of them may have called one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import REPOSITORY, QuorateNodes
from tests.support.wire_load import Connection, Job, prepare, run, run_jobs

COUNT = 2000
REFUSAL = "unpickling is forbidden in this process"
SITECUSTOMIZE = f"""
import _pickle
import os
import pickle
import pathlib


def refuse(*_arguments, **_options):
    place = pathlib.Path(os.environ["PICKLE_TRAP"], f"called-by-{{os.getpid()}}")
    place.touch()
    raise RuntimeError({REFUSAL!r})


class Unpickler(pickle._Unpickler):
    __init__ = refuse


for module in (pickle, _pickle):
    module.loads = module.load = refuse
    module.Unpickler = Unpickler
pickle._loads = pickle._load = refuse
pickle._Unpickler = Unpickler
pathlib.Path(os.environ["PICKLE_TRAP"], f"armed-in-{{os.getpid()}}").touch()
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with the sitecustomize, where the children leave marks."""
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    return tmp_path


@pytest.fixture
def trapped_nodes(trap: Path) -> Iterator[QuorateNodes]:
    environment = {"PYTHONPATH": os.pathsep.join([str(trap), str(REPOSITORY)]), "PICKLE_TRAP": str(trap)}
    with QuorateNodes(environment=environment) as nodes:
        yield nodes


def load(nodes: QuorateNodes, folder: str) -> None:
    """Write through one node and compare what every node holds."""
    job = Job(nodes.host(nodes.leader()), "create", folder, COUNT)
    with Connection(job.host) as connection:
        connection.ensure(folder)
        run(connection, job, prepare(job))
    for node_id in nodes.node_ids:
        if nodes.running(node_id):
            with Connection(nodes.host(node_id)) as connection:
                connection.sync()
            run_jobs([Job(nodes.host(node_id), "read_verify", folder, COUNT)])


def test_the_trap_works(trap: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(trap), "PICKLE_TRAP": str(trap)}
    done = subprocess.run(
        [sys.executable, "-c", "import pickle; pickle.loads(pickle.dumps(1))"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert REFUSAL in done.stderr
    assert list(trap.glob("called-by-*"))


def test_a_cluster_works_where_unpickling_raises(trapped_nodes: QuorateNodes, trap: Path) -> None:
    nodes = trapped_nodes
    for node_id in nodes.node_ids:
        assert (trap / f"armed-in-{nodes.pid(node_id)}").exists()
    load(nodes, "/before")
    killed = nodes.leader()
    nodes.kill(killed)
    load(nodes, "/during")
    nodes.start_node(killed)
    nodes.wait_ready()
    load(nodes, "/after")
    nodes.one_digest()
    for node_id in nodes.node_ids:
        nodes.stop(node_id)
    for node_id in nodes.node_ids:
        nodes.start_node(node_id)
    nodes.wait_ready()
    for node_id in nodes.node_ids:
        run_jobs([Job(nodes.host(node_id), "read_verify", "/during", COUNT)])
    assert list(trap.glob("called-by-*")) == []
    for _title, text in nodes.outputs():
        assert REFUSAL not in text
