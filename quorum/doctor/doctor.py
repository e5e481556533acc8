"""One look at a cluster: what answers is asked at once, files are read, and the checks judge.

Decides the order of the looks and how long each may take, so that all of it ends within 20 s. What other
packages know to look at comes by an entry point in the group `quorate.doctor` (`Examiner`). No state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.config.logins import FileLogin
from quorum.config.node import load_node_config
from quorum.doctor.asking import AdminAsker, asking
from quorum.doctor.machine_look import Load, admin_urls, look_at_machine, named_configs
from quorum.doctor.quorum_look import look_at_quorum
from quorum.doctor.terms_look import look_at_terms
from quorum.health.findings import Check, Examined, Report, examine, report, skip_all
from quorum.health.machine_checks import MACHINE_CHECKS
from quorum.health.process_checks import PROCESS_CHECKS
from quorum.health.quorum_checks import QUORUM_CHECKS
from quorum.health.seen import ProcessesSeen, ProcessSeen, QuorumSeen

#: of all that is done after the nodes were asked; with those (asking.ANSWER_TIMEOUT_S) it stays below 20 s
REST_TIMEOUT_S: Final = 11.0
ENTRY_POINT_GROUP: Final = "quorate.doctor"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a look is about.

    Attributes:
        admin: admin ports that were named; none: those that the configurations name, else the default ones.
        bootstrap: brokers that were named, "host:port,…"; None: those that are registered.
        lag_max: records that a group may lag behind.
        configs: files of this machine that are looked at.
        login, mechanism: what is proved to what runs on top of the quorum, and how; None: nothing.
    """

    admin: tuple[str, ...] = ()
    bootstrap: str | None = None
    lag_max: int = 100_000
    configs: tuple[Path, ...] = ()
    login: FileLogin | None = None
    mechanism: str = ""


class Looked(NamedTuple):
    """What an examiner found.

    Attributes:
        processes: that it saw.
        silent: {process: why it has not answered}.
    """

    examined: Examined
    processes: tuple[ProcessSeen, ...] = ()
    silent: Mapping[str, str] = {}


class Survey(NamedTuple):
    """All of one look.

    Attributes:
        report: what was found.
        processes: that answered.
        silent: {process or admin URL: why it has not answered}.
        named: admin ports that a person or a file named, and may learn the token.
    """

    report: Report
    processes: tuple[ProcessSeen, ...]
    silent: Mapping[str, str]
    named: tuple[str, ...]


class Examiner(Protocol):
    """The shape of a module that looks at what runs on top of the quorum."""

    #: every check that it makes
    CHECKS: Sequence[Check[Any]]
    #: {section of the configurations of its processes: what loads them}
    LOADERS: Mapping[str, Load]

    async def look(self, asker: AdminAsker, quorum: QuorumSeen, scope: Scope) -> Looked:
        """Look and judge; may be cancelled at any time."""


def examiners() -> list[Examiner]:
    """Return those that are installed."""
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return [cast("Examiner", entry.load()) for entry in found]


def all_checks() -> list[Check[Any]]:
    """Return every check, in the order of reports."""
    ours: list[Check[Any]] = [*QUORUM_CHECKS]
    for each in examiners():
        ours += each.CHECKS
    return [*ours, *MACHINE_CHECKS, *PROCESS_CHECKS]


def scope_of(
    admin: Sequence[str], bootstrap: str | None, lag_max: int, configs: Sequence[Path], data_dir: Path | None
) -> Scope:
    """Return what a look is about, as a command line says it.

    Raises:
        UsageError: a file is not there.
    """
    return Scope(tuple(admin), bootstrap, lag_max, tuple(named_configs(configs, data_dir)))


def loaders() -> dict[str, Load]:
    """Return {section that a kind of configuration has: what loads it}."""
    others = {section: load for each in examiners() for section, load in each.LOADERS.items()}
    return {"node": load_node_config, **others}


async def diagnose(scope: Scope) -> Survey:
    """Look at all of it and say how the cluster is."""
    found = examiners()
    machine = examine(MACHINE_CHECKS, look_at_machine(scope.configs, loaders()))
    named = scope.admin or tuple(admin_urls(scope.configs))
    async with asking(named) as asker:
        quorum = await look_at_quorum(asker, named or DEFAULT_ADMIN_URLS, named=bool(named))
        terms, looks = await asyncio.gather(
            look_at_terms(asker, quorum),
            asyncio.gather(*(_look(each, asker, quorum, scope) for each in found)),
        )
        quorum = quorum._replace(terms=terms)
    seen = [node.process for node in quorum.nodes] + [each for look in looks for each in look.processes]
    processes = examine(PROCESS_CHECKS, ProcessesSeen(tuple(seen), time.time()))
    cluster_id = next((node.cluster_id for node in quorum.nodes if node.cluster_id), None)
    parts = (examine(QUORUM_CHECKS, quorum), *(look.examined for look in looks), machine, processes)
    silent = {**quorum.silent, **quorum.refused}
    for look in looks:
        silent |= look.silent
    return Survey(report(cluster_id, *parts), tuple(seen), silent, tuple(named or DEFAULT_ADMIN_URLS))


async def _look(examiner: Examiner, asker: AdminAsker, quorum: QuorumSeen, scope: Scope) -> Looked:
    try:
        async with asyncio.timeout(REST_TIMEOUT_S):
            return await examiner.look(asker, quorum, scope)
    except TimeoutError:
        return Looked(skip_all(examiner.CHECKS, f"it took longer than {REST_TIMEOUT_S:g} s"))
