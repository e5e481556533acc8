"""A job over the change log: a computation from changes to an answer, and the options of all such jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.jobs import arguments as options
from pipeline.jobs.changes import check_source, follow_changes, read_changes
from pipeline.jobs.job import Job

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

Compute = Callable[["DataFrame", argparse.Namespace], "DataFrame"]
Picture = Callable[["DataFrame", argparse.Namespace], "Figure"]


def changelog_job(
    name: str,
    summary: str,
    description: str,
    compute: Compute,
    *,
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None,
    check: Callable[[argparse.Namespace], None] | None = None,
    picture: Picture | None = None,
    is_finding: Callable[[DataFrame], bool] | None = None,
) -> Job:
    """Return a job that reads the change log, in batch or following it."""

    def add_all(parser: argparse.ArgumentParser) -> None:
        if add_arguments is not None:
            add_arguments(parser)
        options.add_changelog_arguments(parser)
        options.add_follow_arguments(parser)

    def check_all(arguments: argparse.Namespace) -> None:
        options.check_changelog(arguments)
        options.check_follow(arguments)
        if check is not None:
            check(arguments)
        check_source(arguments)

    return Job(
        name=name,
        summary=summary,
        description=description,
        add_arguments=add_all,
        read=read_changes,
        compute=compute,
        check=check_all,
        picture=picture,
        is_finding=is_finding,
        follow=follow_changes,
    )


def run_as_program(job: Job) -> int:
    """Run a job as `quorate pipeline` would, with this process's arguments; returns the exit code."""
    from quorum.cli.main import main

    return main(["pipeline", job.name, *sys.argv[1:]])
