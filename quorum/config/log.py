"""The section [log], which nodes and brokers have alike."""

from __future__ import annotations

from dataclasses import dataclass

from quorum.config.settings import setting, text
from quorum.platform.logs import FORMATS, TEXT


@dataclass(frozen=True, slots=True)
class LogSection:
    """How a process writes its log on standard error."""

    #: json: one object a line
    format: str = setting(text("|".join(FORMATS), " or ".join(f'"{each}"' for each in FORMATS)), TEXT)
