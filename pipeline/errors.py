"""Errors that a user of the pipeline meets: an option or an input that cannot be taken.

Each names what it is about, the value and the remedy. The driver raises them before Spark starts work.
"""

from __future__ import annotations

from quorum.errors import QuorateError, UsageError, shown


class OptionError(UsageError):
    """An option of a source, a sink or a job cannot be taken."""

    def __init__(self, name: str, value: object, problem: str, remedy: str) -> None:
        super().__init__(f"option {name} = {shown(value)}: {problem}", remedy)
        self.name = name
        self.value = value
        self.problem = problem


class InputError(QuorateError):
    """What a job was given to read is damaged or gone."""
