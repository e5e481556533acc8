"""Runs chaos, or judges a recorded run again.

python -m tests.chaos [--seconds 600] [--seed N] [--workload A,B] [--nemesis C,D] [--nodes 3] [--brokers 3]
                       [--plant MISTAKE]
python -m tests.chaos --check FOLDER

Ends with 0 if all is good, 1 if something is wrong, 2 if the recorded run is damaged.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from pipeline.checks.history import HistoryError
from tests.chaos import kafka_peer, peer
from tests.chaos.nemeses import NEMESES
from tests.chaos.planted import PLANTS
from tests.chaos.report import summary
from tests.chaos.run import Plan, judge_run, run, stages
from tests.chaos.workloads import WORKLOADS

#: {another system: its workload, the nemeses that strike it}
PEERS: Final = {"zookeeper": ("registers", peer.NEMESES), "kafka": ("records", kafka_peer.NEMESES)}


def _names(known: dict[str, type], joined_by: str | None = None) -> object:
    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name] or list(known)
        for part in [part for name in names for part in name.split(joined_by)]:
            if part not in known:
                raise argparse.ArgumentTypeError(f"{part!r} is not known; use {', '.join(known)}")
        return names

    return read


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workload", type=_names(WORKLOADS), default=list(WORKLOADS))  # type: ignore[arg-type]
    parser.add_argument("--nemesis", type=_names(NEMESES, "+"), default=list(NEMESES))  # type: ignore[arg-type]
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--system", choices=("quorate", *PEERS), default="quorate")
    parser.add_argument("--plant", choices=PLANTS, default="", help="a mistake in the brokers, to be found")
    parser.add_argument("--secured", action="store_true", help="with TLS, SASL and access lists everywhere")
    parser.add_argument("--check", type=Path, default=None, help="judge the run in this folder again")
    arguments = parser.parse_args(words)
    for client in ("kazoo", "kafka"):  # they lose their server now and then
        logging.getLogger(client).setLevel(logging.CRITICAL)
    if arguments.check is not None:
        try:
            report = judge_run(arguments.check)
        except HistoryError as error:
            print(f"error: {arguments.check} is no whole recorded run: {error}", file=sys.stderr)
            print("remedy: take another copy of the run, or make one with `make chaos`", file=sys.stderr)
            return 2
        print(summary(report))
        return int(report.failed)
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    plan = Plan(
        *(arguments.seconds, seed, arguments.workload, arguments.nemesis, arguments.nodes, arguments.brokers)
    )
    plan = replace(plan, planted=arguments.plant, is_secured=arguments.secured)
    if arguments.system in PEERS:
        workload, known = PEERS[arguments.system]
        nemeses = [name for name in arguments.nemesis if name in known]
        plan = replace(plan, system=arguments.system, workloads=[workload], nemeses=nemeses)
    failed = False
    for stage in stages(plan):
        print(f"seed {seed}: {', '.join(stage.workloads)} for {stage.seconds:.0f} s", flush=True)
        report = run(stage)
        print(summary(report), flush=True)
        failed = failed or report.failed
    if failed:
        print(f"again: python -m tests.chaos {' '.join(words)} {'' if arguments.seed else f'--seed {seed}'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
