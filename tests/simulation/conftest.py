"""Each seed ends with a collection: what was imported and collected before is never walked over again."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    gc.freeze()
