"""The section [audit], which nodes and brokers have alike.

Decides where the file lies: a relative one in the data directory. Opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quorum.config.settings import BOOLEAN, ValueKind, integer, setting
from quorum.errors import ConfigProblem
from quorum.platform.audit import AuditLog

_MIB: Final = 1024 * 1024


def _read_file(value: Any, _folder: Path) -> Path:
    if not isinstance(value, str) or "\0" in value or not Path(value).name:
        raise ValueError("is not a path")
    path = Path(value).expanduser()
    if not path.is_absolute() and (len(path.parts) > 1 or path.suffix != ".log"):
        # All else in the data directory has another use.
        raise ValueError("is neither absolute nor a name that ends in .log")
    return path


_FILE: Final = ValueKind(
    "a path; a relative one is a name in the data directory, as audit.log", _read_file, text=True
)


@dataclass(frozen=True, slots=True)
class AuditSection:
    """Who changed what, and who was refused, in a file of its own."""

    enable: bool = setting(BOOLEAN, False)
    #: one JSON object a line, mode 0600
    file: Path = setting(_FILE, Path("audit.log"))
    #: above it a new one is begun
    file_bytes_max: int = setting(integer(65_536, 1024 * 1024 * _MIB), 100 * _MIB)
    #: older ones that are kept, as FILE.1 (the newest) to FILE.files_max
    files_max: int = setting(integer(1, 1000), 10)


def check_audit(audit: AuditSection, problems: list[ConfigProblem]) -> None:
    """Note that there is no folder for the file."""
    if audit.enable and audit.file.is_absolute() and not audit.file.parent.is_dir():
        problem = f"cannot be made: there is no folder {audit.file.parent}"
        problems.append(ConfigProblem("audit.file", str(audit.file), problem, "make it, or name another one"))


def audit_log(audit: AuditSection, data_dir: Path) -> AuditLog | None:
    """Return the audit log, which is to be started; None: there is none."""
    if not audit.enable:
        return None
    path = data_dir / audit.file
    return AuditLog(path, file_bytes_max=audit.file_bytes_max, files_max=audit.files_max)
