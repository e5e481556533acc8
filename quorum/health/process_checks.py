"""The checks that every process has, node or broker: versions, clocks, open files, certificates, event loop.

Pure; no state.

Source: docs/operate/doctor.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from quorum.health.findings import Check, Found, Severity, Skipped
from quorum.health.seen import ProcessesSeen, RoomSeen

#: seconds that two clocks may differ; a look is good to half a second
CLOCKS_DIFFER_S_MAX: Final = 2.0
#: of the open files that a process may have
OPEN_FILES_SHARE_MAX: Final = 0.8
#: in how many days a disk may be full, and for how long its room was watched at least
DISK_DAYS_MIN: Final = 7
ROOM_SPAN_S_MIN: Final = 3600.0
#: an event loop that is held for longer answers nobody meanwhile
TURN_S_MAX: Final = 1.0
_DAY_S: Final = 86_400.0
#: how long before its end a certificate is found
EXPIRY_S: Final = 30 * _DAY_S


def _versions_differ(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    by_version: dict[str, list[str]] = {}
    for process in seen.processes:
        if process.version is not None:
            by_version.setdefault(process.version, []).append(process.name)
    if not by_version:
        return Skipped("no process says its version")
    found = list(_levels_differ(seen))
    if len(by_version) > 1:
        told = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(by_version.items()))
        found.append(Found("cluster", f"versions differ: {told}", "finish the update of the others"))
    return iter(found)


def _levels_differ(seen: ProcessesSeen) -> Iterator[Found]:
    levels = {each.name: each.feature_level for each in seen.processes if each.feature_level is not None}
    least, most = min(levels.values(), default=0), max(levels.values(), default=0)
    if least < most:
        old = ", ".join(name for name, level in levels.items() if level == least)
        what = f"the feature level cannot rise above {least}: {old} supports no more, others up to {most}"
        yield Found("cluster", what, f"finish the update of {old}; up to then every node can still go back")


def _clocks_differ(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    clocks = [(each.clock_ahead_s, each.name) for each in seen.processes if each.clock_ahead_s is not None]
    if len(clocks) < 2:
        return Skipped("fewer than two processes tell their time")
    (least_s, behind), (most_s, ahead) = min(clocks), max(clocks)
    if most_s - least_s <= CLOCKS_DIFFER_S_MAX:
        return iter(())
    what = f"the clock of {ahead} is {most_s - least_s:.1f} s ahead of that of {behind}"
    remedy = "let a time service, chrony for one, set the clocks of all machines"
    return iter((Found(ahead, what, remedy, "chronyc tracking"),))


def _open_files(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    known = [each for each in seen.processes if each.open_files is not None and each.open_files_max]
    if not known:
        return Skipped("no process says how many files it has open")
    return (
        Found(
            each.name,
            f"{each.name} has {each.open_files} of {each.open_files_max} files open",
            "start it with a higher limit of open files, or see who holds connections",
            "ulimit -n",
        )
        for each in known
        if (each.open_files or 0) > OPEN_FILES_SHARE_MAX * (each.open_files_max or 1)
    )


def told_expiry(until_s: float, now_s: float) -> str:
    """Say when a certificate expires, or has: as "expires in 3.5 days"."""
    days = (until_s - now_s) / _DAY_S
    return f"expires in {days:.1f} days" if days > 0 else f"expired {-days:.1f} days ago"


def is_due(until_s: float, now_s: float) -> Severity | None:
    """Say how bad the end of a certificate is: an error once it has come, None while it is far away."""
    if until_s <= now_s:
        return Severity.ERROR
    return Severity.WARNING if until_s - now_s <= EXPIRY_S else None


def _certificate_expires(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    if not any(each.expiries for each in seen.processes):
        return Skipped("no process that answers shows a certificate")
    return (
        Found(
            each.name,
            f"a certificate of tls.{name} of {each.name} {told_expiry(until_s, seen.now_s)}",
            "replace its files: the process reads them again within a minute, without a restart",
            "quorate certs --help",
            severity,
        )
        for each in seen.processes
        for name, until_s in each.expiries.items()
        if (severity := is_due(until_s, seen.now_s)) is not None
    )


def _disk_fills(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    known = [
        (each.name, each.room)
        for each in seen.processes
        if each.room is not None and each.room.span_s >= ROOM_SPAN_S_MIN
    ]
    if not known:
        return Skipped("no process has watched its disk for an hour: it does while its metrics are read")
    return _filling(known)


def _filling(known: Iterable[tuple[str, RoomSeen]]) -> Iterator[Found]:
    for name, room in known:
        if room.change_bytes >= 0:
            continue
        days = room.free_bytes * room.span_s / -room.change_bytes / _DAY_S
        if days < DISK_DAYS_MIN:
            yield Found(
                name,
                f"the disk of {name} is full in {days:.1f} days, if it fills as in the last "
                f"{room.span_s / 3600:.1f} hours: {-room.change_bytes / 1024**3:.1f} GiB went, "
                f"{room.free_bytes / 1024**3:.1f} GiB are free",
                "make room, shorten the retention of topics, or move the directory to a larger disk",
                "df -h",
                Severity.ERROR if days < 1 else None,
            )


def _loop_held(seen: ProcessesSeen) -> Iterator[Found] | Skipped:
    known = [each for each in seen.processes if each.longest_turn_s is not None]
    if not known:
        return Skipped("no process says how long its event loop was held")
    return (
        Found(
            each.name,
            f"something held the event loop of {each.name} for {each.longest_turn_s:.1f} s lately",
            "see whether its machine has cores and memory to spare, and its log",
        )
        for each in known
        if (each.longest_turn_s or 0.0) > TURN_S_MAX
    )


_W: Final = Severity.WARNING
PROCESS_CHECKS: Final[tuple[Check[ProcessesSeen], ...]] = (
    Check(
        *("certificate-expires", _W, "a certificate in use expires within 30 days; an error once it has"),
        *("from then on no TLS connection comes about", _certificate_expires),
    ),
    Check(
        *("disk-fills", _W, f"a disk is full in {DISK_DAYS_MIN} days as it fills; an error within a day"),
        *("a process whose disk is full stops", _disk_fills),
    ),
    Check(
        *("open-files", _W, f"a process has over {OPEN_FILES_SHARE_MAX:.0%} of its open files in use"),
        *("at the limit it takes no more connections and opens no more logs", _open_files),
    ),
    Check(
        *("clocks-differ", _W, f"the clocks of two processes differ by over {CLOCKS_DIFFER_S_MAX:.0f} s"),
        *("times of records, retention and TTL nodes go by them", _clocks_differ),
    ),
    Check(
        *("versions-differ", _W, "not all processes run the same version"),
        *("a mixed cluster is meant for the time of an update", _versions_differ),
    ),
    Check(
        *("loop-held", Severity.INFO, f"one piece of work held an event loop for over {TURN_S_MAX:.0f} s"),
        *("meanwhile the process answers nobody, and its sessions may end", _loop_held),
    ),
)
