"""`python -m tests.site` builds the site to build/docs/site."""

from __future__ import annotations

import sys

from tests.site import staging
from tests.tidy.rules import REPOSITORY


def main() -> int:
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


if __name__ == "__main__":
    sys.exit(main())
