"""Which interpreter runs this process, and whether it was built for speed.

An interpreter that was built without profile-guided optimisation makes every figure worse, so figures say
which one they are of. Reads what the build recorded; measures nothing.

Source: docs/internals/benchmarks.md, "The interpreter".
"""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Mapping
from importlib.metadata import version

YES, NO, UNKNOWN = "yes", "no", "unknown"


def interpreter() -> dict[str, str]:
    """Return python and uvloop (their versions), implementation, pgo and lto (see `optimisation`)."""
    return {
        "implementation": platform.python_implementation(),
        "python": platform.python_version(),
        **optimisation(sysconfig.get_config_vars()),
        "uvloop": version("uvloop"),
    }


def optimisation(variables: Mapping[str, object]) -> dict[str, str]:
    """Tell how an interpreter was built.

    Debian builds with both and then takes the flags out of what the build recorded, so that extensions are
    built without them: of profile-guided optimisation an emptied variable is left, of link-time nothing.

    Args:
        variables: of sysconfig.

    Returns:
        pgo and lto: "yes", "no", or "unknown" where the build recorded nothing.
    """
    arguments, flags = str(variables.get("CONFIG_ARGS") or ""), ""
    for name in ("PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS", "PY_LDFLAGS_NODIST"):
        flags += f" {variables.get(name) or ''}"
    if not arguments:
        return {"pgo": UNKNOWN, "lto": UNKNOWN}
    emptied = bool(variables.get("PGO_PROF_GEN_FLAG")) and not variables.get("PGO_PROF_USE_FLAG")
    pgo = emptied or "--enable-optimizations" in arguments or "-fprofile" in flags
    lto = ("--with-lto" in arguments and "--with-lto=no" not in arguments) or "-flto" in flags
    return {"pgo": YES if pgo else NO, "lto": YES if lto else UNKNOWN if emptied else NO}
