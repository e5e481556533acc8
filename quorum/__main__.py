"""`python -m quorum …` is the same as `quorate …`, also where the command is not on the PATH."""

import sys

from quorum.cli import main

if __name__ == "__main__":
    sys.exit(main())
