"""`python -m tests.site` builds the site to build/docs/site; `… reference` writes the pages that
are made from the code.
"""

from __future__ import annotations

import argparse
import sys

from tests.site import reference, staging
from tests.tidy.rules import REPOSITORY


def build() -> int:
    """Build; print where the site is, or what is wrong with a page."""
    folder = REPOSITORY / "build/docs"
    try:
        built = staging.build(folder)
    except staging.DeadLinkError as error:
        sys.stderr.write(f"error: {error}\nremedy: correct the link, or add the page\n")
        return 1
    if built.returncode != 0:
        sys.stderr.write(built.stdout + built.stderr)
        return 1
    sys.stdout.write(f"{folder.relative_to(REPOSITORY)}/site/index.html\n")
    return 0


def write() -> int:
    """Write the pages that differ from the code; print their paths."""
    for path, make in reference.PAGES.items():
        file, text = REPOSITORY / path, make()
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            sys.stdout.write(f"{path}\n")
    return 0


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.site", allow_abbrev=False)
    parser.add_argument("action", nargs="?", default="build", choices=("build", "reference"))
    return {"build": build, "reference": write}[parser.parse_args().action]()


if __name__ == "__main__":
    sys.exit(main())
