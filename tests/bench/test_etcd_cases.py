"""Every case works against real etcd servers, at a tiny size: `make bench` runs this before it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import million, peers, residence
from tests.bench.cases import TINY
from tests.support import etcd_wire
from tests.support.etcd import Etcd
from tests.support.grpc_wire import GrpcConnection, GrpcError
from tests.support.wire_load import Job, LoadError, run_jobs

PROGRAM = "tests.support.etcd_load"


@pytest.mark.timeout(900)
def test_every_case_measures_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(million, "FOLDERS", 10)
    lines, _picture = peers.run(tmp_path, peers.GROUPS, ["etcd"], 1, TINY, warm_up=False)
    rows = [row for cases in peers.CASES.values() for case in cases for row in case.rows]
    for row in [*rows, *residence.ROWS]:
        shown = [line.split(" | ")[1:3] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its medians, once with every round"
        assert "–" not in (shown[0] if row.compared else shown[0][1:]), f"{row.name}: {shown}"


def test_etcd_takes_what_the_loads_encode_and_refuses_a_stale_version(tmp_path: Path) -> None:
    with Etcd(3, tmp_path) as etcd:
        assert etcd.version().startswith("3.")
        host = etcd.hosts[etcd.leader()]
        with GrpcConnection(host) as connection:
            connection.call(etcd_wire.PUT, etcd_wire.put("/g/fence", b""))
            absent = connection.call(etcd_wire.RANGE, etcd_wire.get("/g", serializable=True))
            assert etcd_wire.value_in(absent) is None
            with pytest.raises(GrpcError, match="status 12: unknown method Dance"):
                connection.call("/etcdserverpb.KV/Dance", b"")
        run_jobs([Job(host, "create", "/g", 300)], PROGRAM)
        run_jobs([Job(host, "read_verify", "/g", 300)], PROGRAM)
        run_jobs([Job(host, "states", "/g", 300, 3, batch=127, version=0, seed=2)], PROGRAM)
        run_jobs([Job(host, "read_verify", "/g", 300, seed=2)], PROGRAM)
        with pytest.raises(LoadError, match=r"transaction \d failed"):
            run_jobs([Job(host, "states", "/g", 300, 3, batch=127, version=0)], PROGRAM)
        with pytest.raises(LoadError, match="holds another value"):
            run_jobs([Job(host, "read_verify", "/g", 300, seed=3)], PROGRAM)
