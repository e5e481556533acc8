"""What ends an import. Nothing is lost by any of them: it is run again and goes on."""

from __future__ import annotations

from quorum.errors import Fault, QuorateError


class ImportFailedError(QuorateError):
    """An import that cannot go on."""

    fault = Fault.OPERATOR


class SourceFileError(ImportFailedError):
    """A file of a ZooKeeper server that cannot be read as one; the message names it."""


class DifferenceError(ImportFailedError):
    """Source and target differ at the cutover; the target stays closed.

    Attributes:
        report: the last line of the import, with the paths in `differences`.
    """

    def __init__(self, message: str, remedy: str, report: dict[str, object]) -> None:
        super().__init__(message, remedy)
        self.report = report
