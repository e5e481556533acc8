"""How an interpreter was built, from what builds really record."""

from __future__ import annotations

import platform
from importlib.metadata import version

import pytest

from quorum.platform.interpreter import interpreter, optimisation

#: what GNU C lets configure record of itself, whether it is used or not
GNU = {"PGO_PROF_GEN_FLAG": "-fprofile-generate", "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction"}
PLAIN = GNU | {"CONFIG_ARGS": "'--prefix=/opt' '--enable-shared'", "PY_CFLAGS": "-DNDEBUG -O3 -Wall"}
DEBIAN = PLAIN | {"PGO_PROF_USE_FLAG": ""}


@pytest.mark.parametrize(
    ("variables", "pgo", "lto"),
    [
        (PLAIN, "no", "no"),
        (PLAIN | {"CONFIG_ARGS": "'--enable-optimizations'"}, "yes", "no"),
        (PLAIN | {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=thin'"}, "yes", "yes"),
        (PLAIN | {"CONFIG_ARGS": "'--with-lto=no'"}, "no", "no"),
        (PLAIN | {"PY_CFLAGS_NODIST": "-fprofile-use", "PY_LDFLAGS_NODIST": "-flto"}, "yes", "yes"),
        (DEBIAN, "yes", "unknown"),
        ({}, "unknown", "unknown"),
    ],
)
def test_what_a_build_recorded_tells_how_it_was_built(
    variables: dict[str, object], pgo: str, lto: str
) -> None:
    assert optimisation(variables) == {"pgo": pgo, "lto": lto}


def test_this_interpreter_is_named_with_its_versions() -> None:
    found = interpreter()
    assert found["python"] == platform.python_version()
    assert found["uvloop"] == version("uvloop")
