"""The checks of the files of one machine: configurations, secrets, certificates, disks.

Pure; no state.

Source: docs/operate/doctor.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from quorum.health.findings import Check, Found, Severity, Skipped
from quorum.health.process_checks import is_due, told_expiry
from quorum.health.seen import FileSeen, MachineSeen

#: a disk is low below this share, unless so many bytes are free, and below these bytes in any case
DISK_FREE_SHARE_MIN: Final = 0.1
DISK_FREE_BYTES_ENOUGH: Final = 20 * 1024 * 1024 * 1024
DISK_FREE_BYTES_MIN: Final = 1024 * 1024 * 1024
#: permission bits that a file must not have, by kind, as the start of a process sees it
_OPEN_TO: Final = {"secret": 0o007, "key": 0o077, "users": 0o077}
_NONE_NAMED: Final = Skipped("no configuration is named; use --config FILE or --data-dir DIR")


def _open_files(seen: MachineSeen) -> list[FileSeen]:
    """Return the files that are open to others."""
    return [each for each in seen.files if each.mode is not None and each.mode & _OPEN_TO.get(each.kind, 0)]


def _secret_readable(seen: MachineSeen) -> Iterator[Found] | Skipped:
    if not seen.configs:
        return _NONE_NAMED
    return (
        Found(
            each.path,
            f"{each.path} ({each.setting}) is open to other users of the machine (mode {each.mode:04o})",
            "take the rights of others away, and replace what it holds if somebody may have read it",
            f"chmod 600 {shlex.quote(each.path)}",
        )
        # Several configurations may name the same file.
        for each in {each.path: each for each in _open_files(seen)}.values()
    )


def _config_wrong(seen: MachineSeen) -> Iterator[Found] | Skipped:
    if not seen.configs:
        return _NONE_NAMED
    # What is open to others, secret-readable says; [tls.NAME] may have its file from [tls].
    said = {(each.config, each.setting.rpartition(".")[2]) for each in _open_files(seen)}
    return (
        Found(config.path, f"{config.path}: {each.setting} = {each.value}: {each.problem}", each.remedy)
        for config in seen.configs
        for each in config.problems
        if (config.path, each.setting.rpartition(".")[2]) not in said
    )


def _certificate_file_expires(seen: MachineSeen) -> Iterator[Found] | Skipped:
    certificates = {each.path: each for each in seen.files if each.expires_s is not None}
    if not certificates:
        return _NONE_NAMED if not seen.configs else Skipped("no configuration names a certificate")
    return (
        Found(
            each.path,
            f"{each.path} ({each.setting}) {told_expiry(each.expires_s or 0.0, seen.now_s)}",
            "replace it: running processes read it again within a minute",
            "quorate certs --help",
            severity,
        )
        for each in certificates.values()
        if (severity := is_due(each.expires_s or 0.0, seen.now_s)) is not None
    )


def _is_low(each: FileSeen) -> bool:
    if each.free_bytes is None or not each.size_bytes:
        return False
    return each.free_bytes < DISK_FREE_BYTES_MIN or (
        each.free_bytes < DISK_FREE_SHARE_MIN * each.size_bytes and each.free_bytes < DISK_FREE_BYTES_ENOUGH
    )


def _disk_low(seen: MachineSeen) -> Iterator[Found] | Skipped:
    if not seen.configs:
        return _NONE_NAMED
    if not any(each.free_bytes is not None for each in seen.files):
        return Skipped("no data directory that a configuration names is there")
    return (
        Found(
            each.path,
            f"the disk of {each.path} has {(each.free_bytes or 0) / 1024**3:.1f} GiB of "
            f"{(each.size_bytes or 0) / 1024**3:.1f} free",
            "make room, shorten the retention of topics, or move the directory to a larger disk",
            f"df -h {shlex.quote(each.path)}",
        )
        for each in seen.files
        if _is_low(each)
    )


_E, _W = Severity.ERROR, Severity.WARNING
MACHINE_CHECKS: Final[tuple[Check[MachineSeen], ...]] = (
    Check(
        *("secret-readable", _E, "others may read or write a secret, token, key or list of users"),
        *("the next start refuses it, and who reads it is a member of the cluster", _secret_readable),
    ),
    Check(
        *("config-wrong", _E, "a configuration that a start would refuse"),
        *("the next start fails", _config_wrong),
    ),
    Check(
        "certificate-file-expires",
        _W,
        "a certificate that a configuration names expires within 30 days; an error once it has",
        *("from then on no TLS connection comes about", _certificate_file_expires),
    ),
    Check(
        *("disk-low", _W, "a data directory's disk has under 10 % and 20 GiB free, or under 1 GiB"),
        *("a process whose disk is full stops", _disk_low),
    ),
)
