"""Play transcripts: python -m tests.scenarios [--rewrite] FILE…

Without ``--rewrite`` it shows how what happens differs from what is written, and exits with 1 if it does.
With it the files are written anew; then a person reads the diff and judges every line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.scenarios.subjects import scene_of, transcripts
from tests.scenarios.transcript import difference, play


def main() -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios")
    parser.add_argument("--rewrite", action="store_true", help="write what happens into the files")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: all of them")
    arguments = parser.parse_args()
    differing = 0
    for path in arguments.files or transcripts():
        text = path.read_text()
        happened = play(text, scene_of(path))
        if happened == text:
            continue
        differing += 1
        if arguments.rewrite:
            path.write_text(happened)
        print(f"{path}{': written anew' if arguments.rewrite else ''}\n{difference(text, happened)}")
    return int(differing > 0 and not arguments.rewrite)


if __name__ == "__main__":
    sys.exit(main())
