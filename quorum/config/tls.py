"""What TLS ports prove and whom they believe: the settings [tls] and [tls.NAME], which nodes and brokers have
alike, and the files that they name.

A table [tls.NAME] overrides single keys for one port. Decides which files a port needs, and that a key is its
owner's alone. Keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from quorum.config.secrets import OTHERS, read_small
from quorum.config.settings import OPTIONAL_PATH, Raw, keys_of, read_section, setting, text
from quorum.errors import ConfigError, ConfigProblem
from quorum.platform.tls import TlsMaterial, UnfitError

#: of one file; a chain or a list of authorities has some KiB
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_AUTH: Final = text("none|want|need", "none, want or need")


@dataclass(frozen=True, slots=True)
class TlsSection:
    """What every TLS port of a node uses, unless its own table says another thing."""

    #: PEM, the leaf first
    certificate_file: Path | None = setting(OPTIONAL_PATH, None)
    #: PEM, mode 0600
    key_file: Path | None = setting(OPTIONAL_PATH, None)
    #: PEM: who signs clients, peers, and servers that are dialled
    authorities_file: Path | None = setting(OPTIONAL_PATH, None)
    #: whether clients show a certificate; not of peers, which always do, and the admin port, which wants one
    client_auth: str = setting(_AUTH, "need")
    minimum_version: str = setting(text(r"1\.[23]", "1.2 or 1.3"), "1.2")


@dataclass(frozen=True, slots=True)
class BrokerTlsSection(TlsSection):
    """The same of a broker, whose clients show no certificate by default."""

    client_auth: str = setting(_AUTH, "none")


class TlsName(NamedTuple):
    """One NAME of [tls.NAME].

    Attributes:
        client_auth: unless its own table says another thing; "": as [tls] has it.
        fixed: whether it may not.
        accepts, dials: what it is used for.
    """

    client_auth: str = ""
    fixed: bool = False
    accepts: bool = True
    dials: bool = False


#: between members of one cluster: both sides prove themselves
MUTUAL: Final = TlsName("need", fixed=True, dials=True)
#: it dials others, and accepts nobody
DIALLER: Final = TlsName("need", fixed=True, accepts=False, dials=True)
#: {NAME of a node: what it is}
NODE_TLS: Final = {"client": TlsName(), "peer": MUTUAL, "admin": TlsName("want")}


def tls_sections(declared: type[TlsSection], names: Mapping[str, TlsName]) -> dict[str, type | None]:
    """Return {section: its dataclass} for [tls] and each [tls.NAME]."""
    return {"tls": declared, **{f"tls.{name}": declared for name in names}}


def read_tls(
    declared: type[TlsSection],
    names: Mapping[str, TlsName],
    raw: Raw,
    folder: Path,
    problems: list[ConfigProblem],
) -> dict[str, TlsSection]:
    """Read [tls] and its tables.

    Args:
        declared: the dataclass of them.
        names: every NAME.
        raw: all layers. folder: where relative paths count from.
        problems: gets one for every value that is wrong.

    Returns:
        {NAME: its settings}, [tls] under its own; without those with a problem.
    """
    base = read_section(declared, "tls", raw, folder, problems)
    found = {} if base is None else {"tls": base}
    for name, what in names.items():
        section = f"tls.{name}"
        own = read_section(declared, section, raw, folder, problems)
        if base is None or own is None:
            continue
        given = raw.get(section, {}).keys() & keys_of(declared).keys()
        changes: dict[str, Any] = {key: getattr(own, key) for key in given}
        if what.client_auth:
            changes = {"client_auth": what.client_auth, **changes}
        if what.fixed and changes["client_auth"] != what.client_auth:
            problem = "weakens a port whose callers always show a certificate"
            value = changes["client_auth"]
            problems.append(ConfigProblem(f"{section}.client_auth", value, problem, "remove it"))
        found[name] = replace(base, **changes)
    return found


def check_tls(
    tls: Mapping[str, TlsSection],
    names: Mapping[str, TlsName],
    used: Mapping[str, str],
    problems: list[ConfigProblem],
) -> None:
    """Note what is missing or wrong of what the ports in use need.

    Args:
        tls: as read_tls returned it. names: every NAME.
        used: {NAME: the setting that makes it be used}.
        problems: gets what is wrong.
    """
    base = tls.get("tls")
    if base is not None and not used:
        _check_half("tls", base, problems)
    for name, setting_name in used.items():
        settings, what, before = tls.get(name), names[name], len(problems)
        if settings is None:
            continue
        needed = {
            "certificate_file": what.accepts,
            "key_file": what.accepts,
            "authorities_file": what.dials or settings.client_auth != "none",
        }
        for key, is_needed in needed.items():
            if is_needed and getattr(settings, key) is None:
                problem = f"is not set, and {setting_name} needs it"
                if key == "authorities_file" and what.accepts and not what.dials:
                    problem += f" (client_auth is {settings.client_auth})"
                remedy = f"give it there or in [tls] (quorate certs makes one), or unset {setting_name}"
                problems.append(ConfigProblem(f"tls.{name}.{key}", '""', problem, remedy))
        if not what.accepts:
            _check_half(f"tls.{name}", settings, problems)
        if len(problems) == before:
            try:
                read_material(settings, name)
            except ConfigError as error:
                problems.extend(error.problems)


def _check_half(section: str, settings: TlsSection, problems: list[ConfigProblem]) -> None:
    pair = {"certificate_file": settings.certificate_file, "key_file": settings.key_file}
    missing = [key for key, path in pair.items() if path is None]
    if len(missing) == 1:
        other = next(key for key in pair if key not in missing)
        problem = f"is not set, and {section}.{other} is"
        problems.append(ConfigProblem(f"{section}.{missing[0]}", '""', problem, "give both, or none"))


def read_material(settings: TlsSection, name: str) -> TlsMaterial:
    """Read the files of one NAME.

    Raises:
        ConfigError: one cannot be read, is open to others, or holds what it should not.
    """
    material = TlsMaterial(
        _read(settings.certificate_file, f"tls.{name}.certificate_file"),
        _read(settings.key_file, f"tls.{name}.key_file", is_private=True),
        _read(settings.authorities_file, f"tls.{name}.authorities_file").decode("ascii", "replace"),
        settings.client_auth,
        settings.minimum_version,
    )
    try:
        material.check()
    except UnfitError as error:
        path = getattr(settings, f"{error.part}_file")
        remedy = "name a file in PEM, as quorate certs makes one"
        raise ConfigError(f"tls.{name}.{error.part}_file", str(path), error.problem, remedy) from error
    return material


def _read(path: Path | None, field: str, *, is_private: bool = False) -> bytes:
    if path is None:
        return b""
    closed_to = OTHERS if is_private else 0
    content = read_small(path, field, _FILE_BYTES_MAX, "name a file in PEM", closed_to=closed_to)
    if not content.strip() or len(content) > _FILE_BYTES_MAX:
        problem = f"holds {len(content)} bytes; PEM has 1 to {_FILE_BYTES_MAX}"
        raise ConfigError(field, str(path), problem, "name a file in PEM")
    return content
