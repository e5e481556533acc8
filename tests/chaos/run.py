"""One chaos run: a cluster, workloads, nemeses, histories on the disk, and the verdicts over them.

    chaos-results/<utc>-<seed>/history/<process>.jsonl   two lines an operation
                              /run.json                  workloads, faults, topology
                              /verdicts.json             what the checkers conclude
                              /final.jsonl               what the cluster holds at the end
                              /output/*.log              what the processes printed
                              /timeline.html             all of it to look at

A run counts only if every kind of nemesis that struck bit at least once.
Source: docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pipeline.checks.history import HistoryError, check_whole, read_history, read_lines
from pipeline.checks.verdicts import BAD, UNKNOWN, Verdict
from tests.chaos.cluster import ChaosCluster
from tests.chaos.kafka_peer import KafkaCluster
from tests.chaos.nemeses import find_nemesis
from tests.chaos.peer import ZooKeeperCluster
from tests.chaos.recorder import Recorder
from tests.chaos.recovery import Figure, figures
from tests.chaos.roles import Roles
from tests.chaos.strikes import Strikes
from tests.chaos.timeline import write_timeline
from tests.chaos.workloads import WORKLOADS
from tests.chaos.workloads.base import History, Workload, pause

QUIET_S: Final = 2.0
#: Workloads of the quorum that run beside brokers, too.
SHARED: Final = ("registers", "appends")
#: How long clients may take to end what they have begun.
DRAIN_S: Final = 120.0


@dataclass(frozen=True)
class Plan:
    """What a run is to do."""

    seconds: float
    seed: int
    workloads: Sequence[str]
    nemeses: Sequence[str]
    nodes: int = 3
    brokers: int = 3
    results: Path = Path("chaos-results")
    #: "quorate", or "zookeeper" or "kafka" in its place
    system: str = "quorate"
    #: a mistake in the brokers, which the checkers must find; see planted.py
    planted: str = ""
    #: everything that keeps strangers out is on; see secured.py
    is_secured: bool = False


def stages(plan: Plan) -> list[Plan]:
    """Split a plan in two where it has workloads with and without brokers: each part gets half of the time.

    The quorum alone is pressed harder when no brokers share the machine with it, and some workloads play the
    part of brokers.
    """
    kinds = [WORKLOADS[name] for name in plan.workloads]
    alone = [each.name for each in kinds if not each.needs_brokers]
    if len(alone) == len(kinds) and not any(find_nemesis(name).needs_brokers for name in plan.nemeses):
        return [plan]
    together = [each.name for each in kinds if not each.excludes_brokers]
    if len(alone) < len(kinds):
        together = [each.name for each in kinds if each.needs_brokers or each.name in SHARED]
    parts = []
    if alone and any(each.excludes_brokers for each in kinds):
        quiet = [name for name in plan.nemeses if not find_nemesis(name).needs_brokers]
        parts.append(replace(plan, workloads=alone, nemeses=quiet))
    if together:
        parts.append(replace(plan, workloads=together))
    return [replace(part, seconds=plan.seconds / len(parts)) for part in parts]


@dataclass
class Report:
    """What a run did and found."""

    folder: Path
    strikes: list[dict[str, Any]]
    #: {outcome: operations}
    operations: Counter[str]
    verdicts: list[Verdict]
    recovery: list[Figure]
    #: why the run does not count
    missing: list[str]

    @property
    def failed(self) -> bool:
        """Whether something is wrong, or the run does not count."""
        return bool(self.missing) or any(each.state in (BAD, UNKNOWN) for each in self.verdicts)


def folder_for(results: Path, seed: int) -> Path:
    """Choose a run's folder."""
    now = dt.datetime.now(dt.UTC)
    return results / f"{now:%Y%m%dT%H%M%SZ}-{seed}"


def made(plan: Plan, with_brokers: bool) -> ChaosCluster:
    """Make the cluster of a plan; entering it starts it."""
    if plan.system == "zookeeper":
        return ZooKeeperCluster(nodes=plan.nodes)
    if plan.system == "kafka":
        return KafkaCluster(nodes=plan.nodes, brokers=plan.brokers)
    faked_clocks = any(find_nemesis(name).fakes_clocks for name in plan.nemeses)
    return ChaosCluster(
        nodes=plan.nodes,
        brokers=plan.brokers if with_brokers else 0,
        faked_clocks=faked_clocks,
        planted=plan.planted,
        is_secured=plan.is_secured,
    )


def run(plan: Plan) -> Report:
    """Run, write everything down, and judge it."""
    folder = folder_for(plan.results, plan.seed)
    rng = random.Random(plan.seed)
    kinds = [WORKLOADS[name] for name in plan.workloads]
    nemeses = [find_nemesis(name) for name in plan.nemeses]
    if not any(each.has_clients for each in kinds):
        nemeses = [each for each in nemeses if not each.needs_clients]
    if not plan.is_secured:
        nemeses = [each for each in nemeses if not each.needs_security]
    with_brokers = any(each.needs_brokers for each in kinds) or any(each.needs_brokers for each in nemeses)
    recorder = Recorder(folder / "history")
    with made(plan, with_brokers) as cluster:
        workloads = [kind(cluster, recorder, random.Random(rng.random())) for kind in kinds]
        strikes = Strikes(cluster, recorder, nemeses, random.Random(rng.random()))
        roles = Roles(cluster)
        began_ns = time.monotonic_ns()
        final: list[dict[str, Any]] | None = None
        try:
            roles.start()
            final = asyncio.run(_load(workloads, strikes, plan.seconds))
        finally:
            roles.stop()
            recorder.close()
            files = [f"history/{name}" for name in recorder.files]
            if final is not None:
                (folder / FINAL).write_text("".join(json.dumps(line) + "\n" for line in final))
                files.append(FINAL)
            _write_run(folder, plan, cluster, strikes, roles, began_ns, files)
            _keep_outputs(folder, cluster)
    return judge_run(folder)


async def _load(workloads: Sequence[Workload], strikes: Strikes, seconds: float) -> list[dict[str, Any]]:
    for workload in workloads:
        await workload.set_up()
    stop, ended = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(workload.run(stop)) for workload in workloads]
    for task in tasks:
        task.add_done_callback(lambda _: ended.set())
    strikes.start(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
    try:
        await pause(ended, seconds)  # a workload that ends early has failed, and so have strikes
        await asyncio.to_thread(strikes.stop)
    except BaseException:
        # What is broken now may never answer clients again; it is the story, and they are not.
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    await pause(ended, QUIET_S)
    stop.set()
    async with asyncio.timeout(DRAIN_S):
        await asyncio.gather(*tasks)
    lines: list[dict[str, Any]] = []
    for workload in workloads:
        lines += await workload.final_state()
    return lines


def _write_run(
    folder: Path,
    plan: Plan,
    cluster: ChaosCluster,
    strikes: Strikes,
    roles: Roles,
    began_ns: int,
    files: list[str],
) -> None:
    record = {
        "seed": plan.seed,
        "system": plan.system,
        "planted": plan.planted,
        "secured": plan.is_secured,
        "seconds": plan.seconds,
        "workloads": list(plan.workloads),
        "nemeses": list(plan.nemeses),
        "topology": {
            "nodes": cluster.node_ids,
            "brokers": cluster.broker_ids,
            "links": cluster.proxies.names,
        },
        "began_ns": began_ns,
        "ended_ns": time.monotonic_ns(),
        "faults": [strike.line() for strike in strikes.strikes],
        "roles": roles.changes,
        # A run that lost one of them is damaged.
        "files": files,
    }
    (folder / "run.json").write_text(json.dumps(record, indent=1) + "\n")


def _keep_outputs(folder: Path, cluster: ChaosCluster) -> None:
    """Keep what the processes printed: the story behind a bad verdict."""
    outputs = folder / "output"
    outputs.mkdir()
    for name, path in cluster.output_files().items():
        (outputs / f"{name}.log").write_bytes(path.read_bytes())


#: what the cluster holds when all is healed
FINAL: Final = "final.jsonl"
#: what the checkers conclude; written again each time that they judge
VERDICTS: Final = "verdicts.json"


def judge_run(folder: Path) -> Report:
    """Judge a recorded run: reads only its files.

    Raises:
        HistoryError: a file is missing or damaged.
    """
    try:
        record = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise HistoryError(f"run.json cannot be read: {error}") from error
    check_whole(folder, record.get("files", []))
    operations = read_history(folder / "history")
    final = [dict(line) for line in read_lines(folder / FINAL)]
    history = History(operations, final)
    verdicts = [verdict for name in record["workloads"] for verdict in WORKLOADS[name].check(history)]
    struck = Counter(strike["nemesis"] for strike in record["faults"])
    bit = Counter(strike["nemesis"] for strike in record["faults"] if strike["bite"])
    missing = [
        f"{name} struck {count} times and never bit" for name, count in struck.items() if not bit[name]
    ]
    if record["nemeses"] and not struck:
        missing.append("no nemesis struck")
    write_timeline(folder, record, operations, verdicts)
    counts = Counter(each.outcome for each in operations)
    recovery = figures(operations, record["faults"])
    report = Report(folder, record["faults"], counts, verdicts, recovery, missing)
    (folder / VERDICTS).write_text(json.dumps(_verdicts(report), indent=1) + "\n")
    return report


def _verdicts(report: Report) -> dict[str, object]:
    checks = [
        {"check": each.check, "state": each.state, "judged": each.judged, "problems": list(each.problems)}
        for each in report.verdicts
    ]
    return {"failed": report.failed, "missing": report.missing, "checks": checks}
