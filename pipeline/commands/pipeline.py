"""`quorate pipeline JOB`: lists the jobs and runs one.

A job is a module of `pipeline.jobs` with a `JOB`. `python -m pipeline.jobs.NAME` and `spark-submit
…/pipeline/jobs/NAME.py` do the same.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from pipeline.jobs.arguments import add_output_arguments
from pipeline.jobs.job import Job
from pipeline.jobs.running import run_job

HELP = "answer questions about a cluster's history with Spark"
DESCRIPTION = """\
Run a Spark job over the change log of a quorum, or over recorded histories: in this process by default, on a
cluster with --master. Exit codes: 0 fine, 1 a finding or a failure, 2 usage."""
EXAMPLES = """\
examples:
  quorate pipeline isr_history
  quorate pipeline leader_at --topic orders --partition 0 --time 2026-11-25T10:00:00
  quorate changelog dump --json > history.jsonl
  quorate pipeline elections --input history.jsonl --picture elections.html
"""
#: Modules of pipeline.jobs.
JOBS: Final = (
    *("isr_history", "elections", "controller_timeline", "flapping", "leader_at", "invariants"),
    *("history_check", "audit", "plan_verify"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the jobs and their options."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name in JOBS:
        job: Job = import_module(f"pipeline.jobs.{name}").JOB
        sub = jobs.add_parser(name, help=job.summary, description=job.description, allow_abbrev=False)
        job.add_arguments(sub)
        add_output_arguments(sub)
        sub.set_defaults(chosen=job)


def run(arguments: argparse.Namespace) -> int:
    """Run the job."""
    return run_job(arguments.chosen, arguments)
