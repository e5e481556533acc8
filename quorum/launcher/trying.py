"""What somebody may try on a cluster that has just started: three commands that work as they are printed.

Decides which; ports that commands take by default are not named. No state.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from quorum.launcher.child import PROGRAM
from quorum.launcher.layout import DEFAULT_PORTS, Layout
from quorum.launcher.probe import admin_url

#: of the topic that is made at the first start
_PARTITIONS, _REPLICAS_MAX = 6, 3


def things_to_try(layout: Layout, program: str) -> list[str]:
    """Return three command lines for a shell.

    Args:
        layout: as it was before the start: a cluster that is founded has its first topic.
        program: what runs `quorate`, as a shell has it.
    """
    brokers = [child for child in layout.children if child.kind == "broker"]
    hosts = _option("--hosts", layout, "client", (child.client_address for child in layout.nodes))
    admin = _option("--admin", layout, "admin", map(admin_url, layout.nodes))
    top = f"{program} top{admin}"
    if not brokers:
        return [top, f"{program} status{admin}", f"{program} shell{hosts} ls /"]
    bootstrap = _option("--bootstrap", layout, "broker", (child.client_address for child in brokers))
    count = min(_REPLICAS_MAX, len(brokers))
    make = f"create hello --partitions {_PARTITIONS} --replication-factor {count}"
    topics = f"{program} topics {'list' if layout.founded else make}{bootstrap}"
    return [topics, top, f"{program} shell{hosts} ls /brokers/topics"]


def program_now(words: list[str]) -> str:
    """Return what runs `quorate` from the present directory, as it was started.

    Args:
        words: sys.argv.
    """
    started = Path(words[0]).absolute()
    if started.name != "quorate":
        return shlex.join(PROGRAM)
    if (found := shutil.which("quorate")) and Path(found).absolute() == started:
        return "quorate"
    here = Path.cwd()
    return shlex.quote(str(started.relative_to(here) if started.is_relative_to(here) else started))


def _option(name: str, layout: Layout, key: str, addresses: Iterable[str]) -> str:
    is_default = layout.ports[key] == DEFAULT_PORTS[key]
    return "" if is_default else f" {name} {','.join(addresses)}"
