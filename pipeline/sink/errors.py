"""What a write of the sink can fail with, besides options: the driver's query ends with it.

Each says whether rows may be in the topic. A query that is started again goes on where it was.
"""

from __future__ import annotations

from pipeline.errors import InputError
from quorum.errors import Fault, QuorateError


class RowError(InputError):
    """A row cannot be written; nothing of its batch was appended."""


class StagedFileError(InputError):
    """What was staged is gone or damaged."""

    fault = Fault.OPERATOR


class SinkFencedError(QuorateError):
    """A newer driver writes under this name; this one appends nothing more."""

    fault = Fault.CLIENT


class SinkNameError(QuorateError):
    """The name belongs to another query or to a later batch than the query's; nothing was appended."""

    fault = Fault.OPERATOR
