"""Look for inputs that break the decoders, apply, or a client connection.

Exits with 1 if one is found; it is made small, written to a file and told with the command that repeats it.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import resource
import sys
import traceback
from pathlib import Path
from typing import Final

from tests.fuzz.applying import ApplyTarget, ImportTarget
from tests.fuzz.connections import ConnectionTarget
from tests.fuzz.decoders import DecoderTarget
from tests.fuzz.loop import Outcome, Target, attempt, fuzz

TARGETS: Final[dict[str, type[Target]]] = {
    "decoder": DecoderTarget,
    "apply": ApplyTarget,
    "import": ImportTarget,
    "connection": ConnectionTarget,
}
#: address space of the process: an input that asks for more is a finding
MEMORY_BYTES_MAX: Final = 2 * 1024**3
FOLDER: Final = Path("fuzz-findings")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60, help="how long to look (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the changes (default: 1)")
    parser.add_argument("--input", type=Path, help="try this file alone")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    target = TARGETS[arguments.target]()
    if arguments.input is not None:
        finding = attempt(target, arguments.input.read_bytes())
    else:
        result = fuzz(target, arguments.seed, seconds=arguments.seconds, progress=_tell)
        _tell(result)
        finding = result.finding
    if finding is None:
        print("nothing found")
        return 0
    traceback.print_exception(finding.error)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{arguments.target}-{hashlib.sha256(finding.data).hexdigest()[:12]}"
    path.write_bytes(finding.data)
    print(f"{len(finding.data)} bytes: {finding.data.hex()}")
    print(f"to repeat it: python -m tests.fuzz {arguments.target} --input {path}")
    return 1


def _tell(outcome: Outcome) -> None:
    print(f"{outcome.runs} inputs, {outcome.kept} kept, {outcome.reached} pairs of lines", flush=True)


if __name__ == "__main__":
    sys.exit(main())
