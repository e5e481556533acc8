"""What all tests share: how hypothesis runs, and that no setting of the environment reaches a test."""

from __future__ import annotations

import os

import hypothesis

# Examples are never timed: on a busy machine that is a coin toss. A failure prints what repeats it.
hypothesis.settings.register_profile("quorate", deadline=None, print_blob=True)
hypothesis.settings.load_profile("quorate")

for name in [name for name in os.environ if name.startswith("QUORATE_")]:
    del os.environ[name]
