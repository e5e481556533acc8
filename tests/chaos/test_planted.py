"""Every mistake that chaos can plant still finds the code that it changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.planted import PLANTS, VARIABLE
from tests.support.nodes import clean_environment


@pytest.mark.parametrize("name", PLANTS)
def test_a_mistake_can_be_planted(name: str) -> None:
    code = "from tests.chaos import planted; planted.install()"
    subprocess.run([sys.executable, "-c", code], check=True, env=clean_environment(**{VARIABLE: name}))
