"""What all tests share: how hypothesis runs, and that no setting of the environment reaches a test."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis

# Examples are never timed: on a busy machine that is a coin toss. A failure prints what repeats it.
hypothesis.settings.register_profile("quorate", deadline=None, print_blob=True)
hypothesis.settings.load_profile("quorate")

# kio imports hypothesis in each command that a test runs, and hypothesis then makes its tables of characters
# again (over a second) wherever a process runs in a folder of its own: all share one place for them.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parent.parent / ".hypothesis"))

for name in [name for name in os.environ if name.startswith("QUORATE_")]:
    del os.environ[name]
