"""The dashboards and alert rules of deploy/observability, and the metrics that they name.

Knows nothing of what is measured. Source: Grafana's dashboard JSON; Prometheus, "Alerting rules".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "observability"


def named_metrics(dashboard: str, alerts: str) -> set[str]:
    """Return the names in the expressions of two files."""
    panels = json.loads((FOLDER / dashboard).read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = (FOLDER / alerts).read_text()
    expressions = re.findall(r"^ +expr: (.+)$", rules, re.MULTILINE)
    assert len(expressions) == rules.count("- alert:")
    return {name for each in (*shown, *expressions) for name in re.findall(r"quorate_\w+", each)}


def shown_metrics(page: str) -> set[str]:
    """Return the names of what a page of metrics has, values or not."""
    return set(re.findall(r"^(?:# TYPE )?(quorate_\w+)", page, re.MULTILINE))


def promtool_path() -> str:
    """Return where promtool is."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("promtool", path=path)
    assert program is not None, "promtool is missing: run `bash deploy/ensure-promtool.sh`"
    return program


def promtool(*words: str | Path) -> tuple[int, str]:
    """Run promtool; return its exit code and what it said."""
    done = subprocess.run(
        [promtool_path(), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
