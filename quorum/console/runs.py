"""The endpoint of recorded runs: folders of results, as `make chaos` and Spark jobs write them.

They are read when a page asks. Decides how many are read, and how large they may be. No state.

Source: docs/internals/reliability.md; docs/clients/jobs.md, "Jobs".
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from quorum.admin.view import json_answer
from quorum.errors import printable

RUNS_MAX: Final = 200
_BYTES_MAX: Final = 8 * 1024 * 1024
#: files of a chaos run, and of a job's answer
RUN: Final = "run.json"
VERDICTS: Final = "verdicts.json"
JOB: Final = "_job.json"
RESULTS: Final = web.AppKey[Path | None]("results")


async def get_runs(request: web.Request) -> web.Response:
    """Answer all runs, the newest name first."""
    results = request.app[RESULTS]
    runs = [] if results is None else await asyncio.to_thread(_runs, results)
    return json_answer({"folder": None if results is None else str(results), "items": runs})


def _runs(results: Path) -> list[dict[str, object]]:
    try:
        names = sorted((each.name for each in results.iterdir() if each.is_dir()), reverse=True)
    except OSError:
        return []
    return [_run(results / name) for name in names[:RUNS_MAX]]


def _run(folder: Path) -> dict[str, object]:
    is_job = (folder / JOB).exists()
    row: dict[str, object] = {"name": folder.name, "kind": "job" if is_job else "chaos", "problem": None}
    name = JOB if is_job else RUN
    try:
        found = _read(folder / name)
        if is_job:
            return {**row, **_job_fields(found)}
        fields = _chaos_fields(found)
        name = VERDICTS
        return {**row, **fields, "verdicts": _verdicts(folder / name)}
    except FileNotFoundError:
        return {**row, "problem": "it has no run.json: the run has not ended"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return {**row, "problem": printable(f"{name} cannot be read: {error}")}


def _read(path: Path) -> Any:
    if path.stat().st_size > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX} bytes")
    return json.loads(path.read_bytes())


def _verdicts(path: Path) -> dict[str, object] | None:
    """Return what the checkers concluded; None: an older run did not keep it."""
    if not path.exists():
        return None
    found = _read(path)
    checks = [
        {
            "check": str(each["check"]),
            "state": str(each["state"]),
            "judged": int(each["judged"]),
            "problems": _texts(each["problems"]),
        }
        for each in found["checks"]
    ]
    return {"failed": bool(found["failed"]), "missing": _texts(found["missing"]), "checks": checks}


def _chaos_fields(found: dict[str, Any]) -> dict[str, object]:
    began = found["began_ns"]
    return {
        "seed": str(found["seed"]),
        "seconds": round((found["ended_ns"] - began) / 1e9, 1),
        "workloads": _texts(found["workloads"]),
        "faults": [
            {
                "nemesis": str(each["nemesis"]),
                "target": str(each["target"]),
                "bite": str(each.get("bite") or ""),
                **{key: _since(each.get(f"{key}_ns"), began) for key in ("started", "stopped", "ready")},
            }
            for each in found["faults"]
        ],
    }


def _job_fields(found: dict[str, Any]) -> dict[str, object]:
    bars = [
        {
            **{key: str(each[key]) for key in ("lane", "kind", "label")},
            **{key: int(each[key]) for key in ("from_ms", "until_ms")},
        }
        for each in found["bars"]
    ]
    return {
        "job": str(found["job"]),
        "began_ms": int(found["began_ms"]),
        "seconds": round((found["ended_ms"] - found["began_ms"]) / 1e3, 1),
        "finding": bool(found["finding"]),
        "rows": int(found["rows"]),
        "columns": _texts(found["columns"]),
        "first_rows": [[None if cell is None else str(cell) for cell in row] for row in found["first_rows"]],
        "bars": bars,
    }


def _texts(found: Any) -> list[str]:
    return [str(each) for each in found]


def _since(at_ns: int | None, began_ns: int) -> float | None:
    return None if at_ns is None else round((at_ns - began_ns) / 1e9, 2)
