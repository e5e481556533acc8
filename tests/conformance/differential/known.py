"""Differences that are meant: each has its row in DIVERGENCES.md.

A rule sees the step and the first difference in it, and says whether it is the one that it describes.
Whatever no rule describes is a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.conformance.differential.compare import Difference
from tests.conformance.differential.player import OUTCOME_CHANGED
from tests.conformance.differential.steps import Break, Step, Stream
from tests.conformance.differential.wire import Op

UNIMPLEMENTED: Final = -6
BAD_ARGUMENTS: Final = -8


class Known(NamedTuple):
    """A difference that is meant."""

    #: words that stand in its row of DIVERGENCES.md
    divergence: str
    matches: Callable[[Step | None, Any, Any], bool]


def _delete_container(step: Step | None, theirs: Any, ours: Any) -> bool:
    """ZooKeeper carries a client's deleteContainer out; ours is not served."""
    if not isinstance(step, Break) or step.op != Op.DELETE_CONTAINER or theirs is None or ours is None:
        return False
    return bool(theirs[5] in (0, BAD_ARGUMENTS) and ours[5] == UNIMPLEMENTED)


def _late(_step: Step | None, theirs: Any, _ours: Any) -> bool:
    """A write of the connection before takes effect on ZooKeeper after the session has resumed elsewhere."""
    return theirs is not None and theirs[1] == OUTCOME_CHANGED


def _long_path(step: Step | None, theirs: Any, ours: Any) -> bool:
    """A path that is longer than ours may be; ZooKeeper takes what its frames hold."""
    if not isinstance(step, Break) or step.kind != "long path" or theirs is None or ours is None:
        return False
    return bool(theirs[5] != BAD_ARGUMENTS and ours[5] == BAD_ARGUMENTS)


#: {name: what it is}
KNOWN: Final[dict[str, Known]] = {
    "deleteContainer of a client": Known("`deleteContainer` from a client", _delete_container),
    "long path": Known("A path has at most 8 KiB and 256 segments", _long_path),
    "late write of a moved session": Known("a late request of it takes no effect", _late),
}


def explain(stream: Stream, difference: Difference) -> str | None:
    """Return the name of the known difference that this is, or None."""
    step = stream.steps[difference.step] if difference.step < len(stream.steps) else None
    for name, known in KNOWN.items():
        if known.matches(step, difference.theirs, difference.ours):
            return name
    return None
