"""What a job is: how it is called, what it reads, what it computes, and when its answer is a finding.

Decides nothing about Spark sessions or output; `running.py` does. Importing a job must not import Spark: the
command line lists every job.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Job:
    """One job of `quorate pipeline`."""

    name: str
    #: one line for the list of jobs
    summary: str
    #: sentences for --help: what a row of the answer means
    description: str
    #: Declare the job's own options; those of output are everyone's (`arguments.py`).
    add_arguments: Callable[[argparse.ArgumentParser], None]
    #: Return what the job reads. Raises OptionError or InputError before Spark reads a row, where it can.
    read: Callable[[SparkSession, argparse.Namespace], DataFrame]
    #: Return the answer; pure, so that a stream can ask again.
    compute: Callable[[DataFrame, argparse.Namespace], DataFrame]
    #: Refuse options that do not fit together, before Spark is started.
    check: Callable[[argparse.Namespace], None] | None = None
    #: Draw what was read.
    picture: Callable[[DataFrame, argparse.Namespace], Figure] | None = None
    #: Whether the answer is a finding (exit code 1), from its collected first rows or from all of it.
    is_finding: Callable[[DataFrame], bool] | None = None
    #: Begin to read what is committed from now on as well; None: the job has no --follow.
    follow: Callable[[SparkSession, argparse.Namespace], Any] | None = None
