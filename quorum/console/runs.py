"""The endpoint of recorded runs: folders of results, as `make chaos` writes them, read when a page asks.

Decides how many are read, and how large they may be. No state.

Source: docs/reliability.md.
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
    row: dict[str, object] = {"name": folder.name, "problem": None}
    path = folder / "run.json"
    try:
        if path.stat().st_size > _BYTES_MAX:
            return {**row, "problem": f"run.json has more than {_BYTES_MAX} bytes"}
        found: Any = json.loads(path.read_bytes())
        return {**row, **_fields(found)}
    except FileNotFoundError:
        return {**row, "problem": "it has no run.json: the run has not ended"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return {**row, "problem": printable(f"run.json cannot be read: {error}")}


def _fields(found: dict[str, Any]) -> dict[str, object]:
    began = found["began_ns"]
    return {
        "seed": str(found["seed"]),
        "seconds": round((found["ended_ns"] - began) / 1e9, 1),
        "workloads": [str(each) for each in found["workloads"]],
        "verdicts": found.get("verdicts"),
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


def _since(at_ns: int | None, began_ns: int) -> float | None:
    return None if at_ns is None else round((at_ns - began_ns) / 1e9, 2)
