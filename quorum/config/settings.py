"""Reads layers of settings (a TOML table, the environment, flags) into frozen dataclasses, and tells every
problem at once.

A section is a frozen dataclass whose fields are made by `setting`; a field's kind decides how a value is
checked and how its text from the environment is read. What a section means, and which values must fit each
other, is not known here. Unknown sections and keys are refused with the nearest known name, because a
misspelt limit that is silently ignored is worse than a node that does not start. No state.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from quorum.config.address import Address, parse_address
from quorum.errors import ConfigError, ConfigProblem, UsageError, shown

ENVIRONMENT_PREFIX = "QUORATE_"
#: Of the command line, whatever it starts (quorum.config.profiles).
_OF_COMMANDS = ("QUORATE_PROFILE", "QUORATE_PROFILE_FILE")
#: Names of brokers' settings begin so. Nodes and brokers ignore each other's names.
BROKER_PREFIX = "QUORATE_BROKER_"

#: What Kubernetes sets for every Service whose name begins with "quorate", next to its …_SERVICE_HOST.
_SERVICE_LINK = re.compile(
    r"(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

Section = TypeVar("Section")


class ValueKind(NamedTuple):
    """How one kind of value is read.

    Attributes:
        wanted: the words for "expected …".
        read: value from TOML (or text of the environment, read as TOML) → checked value; raises ValueError
            with the problem.
        text: true if the environment's text is taken as it is, never read as TOML.
        listed: true if a text of the environment that is not a TOML list has commas between its items.
    """

    wanted: str
    read: Callable[[Any, Path], Any]
    text: bool = False
    listed: bool = False


class Origin(NamedTuple):
    """A raw value and where it came from: "" for the file, else the name of the variable or flag."""

    value: object
    source: str


Raw = dict[str, dict[str, Origin]]


def integer(low: int, high: int) -> ValueKind:
    """A whole number in low..high, both inclusive."""

    def read(value: Any, _folder: Path) -> int:
        if type(value) is not int:
            raise ValueError("is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"is out of range ({low} to {high})")
        return value

    return ValueKind(f"a whole number from {low} to {high}", read)


def integer_range(low: int, high: int) -> ValueKind:
    """Two whole numbers [least, most], each in low..high, the first not above the second."""

    def read(value: Any, folder: Path) -> tuple[int, int]:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError("is not a list of two whole numbers")
        least, most = (integer(low, high).read(each, folder) for each in value)
        if least > most:
            raise ValueError("has its smaller number second")
        return least, most

    return ValueKind(f"two whole numbers [least, most], each from {low} to {high}", read)


def _read_boolean(value: Any, _folder: Path) -> bool:
    if type(value) is not bool:
        raise ValueError("is not true or false")
    return value


def _read_address(value: Any, _folder: Path) -> Address:
    if not isinstance(value, str):
        raise ValueError("is not a text of the form host:port")
    return parse_address(value)


def _read_path(value: Any, folder: Path) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is not a path")
    return folder / Path(value).expanduser()


def text(pattern: str, wanted: str) -> ValueKind:
    """A text that matches a regular expression as a whole."""

    def read(value: Any, _folder: Path) -> str:
        if not isinstance(value, str):
            raise ValueError("is not a text")
        if not re.fullmatch(pattern, value):
            raise ValueError(f"is not {wanted}")
        return value

    return ValueKind(wanted, read, text=True)


def texts(pattern: str, wanted: str, example: str = "") -> ValueKind:
    """A list of texts, each of which matches a regular expression as a whole.

    Args:
        pattern: the expression. wanted: what each is, as "host name". example: a list of them, or "".
    """

    def read(value: Any, _folder: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError("is not a list of texts")
        for each in value:
            if not re.fullmatch(pattern, each):
                raise ValueError(f"has {each!r}, which is no {wanted}")
        return tuple(dict.fromkeys(value))

    return ValueKind(f"a list of {wanted}s{example and f', as {example}'}", read, listed=True)


def words(known: Iterable[str], *, star: bool = True) -> ValueKind:
    """A list of known words without repeats; star: or ["*"] for all of them."""
    names = tuple(known)

    def read(value: Any, _folder: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise ValueError("is not a list of words")
        if star and value == ["*"]:
            return names
        for word in value:
            if word not in names:
                raise ValueError(f"has an unknown word {word!r}{nearest(word, names)}")
        return tuple(dict.fromkeys(value))

    or_all = ', or ["*"] for all' if star else ""
    return ValueKind(f"a list of words out of {', '.join(names)}{or_all}", read, listed=True)


BOOLEAN = ValueKind("true or false", _read_boolean)
ADDRESS = ValueKind("host:port, as 127.0.0.1:2181 or [::1]:2181", _read_address, text=True)
OPTIONAL_ADDRESS = ValueKind(
    'host:port, or ""',
    lambda value, folder: None if value == "" else _read_address(value, folder),
    text=True,
)
PATH = ValueKind(
    "a path; a relative one counts from the folder of the configuration file", _read_path, text=True
)
OPTIONAL_PATH = ValueKind(
    'a path, or ""; a relative one counts from the folder of the configuration file',
    lambda value, folder: None if value == "" else _read_path(value, folder),
    text=True,
)

_REQUIRED: Any = dataclasses.MISSING


def setting(kind: ValueKind, default: Any = _REQUIRED, *, secret: bool = False) -> Any:
    """Declare one key of a section.

    Args:
        kind: how its value is read and checked.
        default: its checked value when no layer gives it; without one the key must be given.
        secret: true if its value is never printed, nor that of a key which may be meant for it.

    Returns:
        A dataclass field (typed Any, as dataclasses.field is).
    """
    return dataclasses.field(default=default, metadata={"kind": kind, "secret": secret})


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name nearest to a wrong one, or nothing."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _told(section: str, key: str, value: object, sections: Mapping[str, type | None]) -> str:
    """Print the value of a setting that is not known, as "***" where it may be a secret.

    A misspelt name must not tell the secret: in a section that holds one or is not known itself, or where the
    key is nearly that of one.
    """
    secrets = {
        name: [each.name for each in dataclasses.fields(declared) if each.metadata["secret"]]
        for name, declared in sections.items()
        if declared is not None
    }
    every = [each for names in secrets.values() for each in names]
    masked = section not in sections or secrets.get(section) or difflib.get_close_matches(key, every)
    return "***" if masked else shown(value)


def keys_of(section: type) -> dict[str, ValueKind]:
    """Return the keys of a section's dataclass with their kinds."""
    return {
        each.name: each.metadata["kind"] for each in dataclasses.fields(section) if "kind" in each.metadata
    }


def field_name(section: str, key: str, source: str) -> str:
    """Name a value for an error: section.key, and the variable or flag that it came from."""
    return f"{section}.{key} (from {source})" if source else f"{section}.{key}"


def collect_file(path: Path) -> Raw:
    """Read the lowest layer, a TOML file of sections.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds a key outside any section.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError("--config", str(path), problem, "name a readable file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problem = f"is not TOML: {error}"
        raise ConfigError("--config", str(path), problem, "mend that line") from error
    raw: Raw = {}
    problems: list[ConfigProblem] = []
    for section, values in table.items():
        if isinstance(values, dict):
            raw.update(collect_sections({section: values}))
        else:
            remedy = f"put it below the header of its section, as [node]{nearest(section, ())}"
            # Which key it is cannot be said without its section, so it may be a secret.
            problems.append(ConfigProblem(section, "***", "stands outside of every section", remedy))
    if problems:
        raise ConfigError.of(problems)
    return raw


def collect_sections(sections: Mapping[str, Mapping[str, object]]) -> Raw:
    """Return a lowest layer that did not come from a file; [a.b] is a section of its own."""
    raw: Raw = {}
    for name, values in sections.items():
        raw[name] = {key: Origin(value, "") for key, value in values.items() if not isinstance(value, dict)}
        for key, value in values.items():
            if isinstance(value, dict):
                raw.update(collect_sections({f"{name}.{key}": value}))
    return raw


def _is_service_link(name: str, environ: Mapping[str, str]) -> bool:
    """Tell whether Kubernetes set a variable: no misspelt setting has a …_SERVICE_HOST next to it."""
    parts = name.split("_")
    return any(
        f"{'_'.join(parts[:cut])}_SERVICE_HOST" in environ
        and _SERVICE_LINK.fullmatch("_".join(parts[cut:])) is not None
        for cut in range(1, len(parts))
    )


def overlay_environment(
    raw: Raw,
    environ: Mapping[str, str],
    sections: Mapping[str, type | None],
    problems: list[ConfigProblem],
    prefix: str = ENVIRONMENT_PREFIX,
) -> None:
    """Put QUORATE_<SECTION>_<KEY> over what the file says; a dot of a section's name is a _ there.

    Args:
        raw: changed in place.
        environ: the process's environment.
        sections: the known sections; None for one whose keys are free (numbers).
        problems: gets one for every variable that names no known key.
        prefix: what a name begins with: ENVIRONMENT_PREFIX, or BROKER_PREFIX.
    """
    for name in sorted(environ):
        if not name.startswith(prefix) or name in _OF_COMMANDS or _is_service_link(name, environ):
            continue
        if prefix == ENVIRONMENT_PREFIX and name.startswith(BROKER_PREFIX):
            continue
        section, key = _section_and_key(name.removeprefix(prefix).lower(), sections)
        declared = sections.get(section, _REQUIRED)
        known = {} if declared in (None, _REQUIRED) else keys_of(declared)
        if declared is _REQUIRED or (declared is not None and key not in known):
            every = [
                f"{prefix}{one}_{key}".replace(".", "_").upper()
                for one, kind in sections.items()
                for key in (keys_of(kind) if kind else ())
            ]
            hint = f"unset it, or correct its name{nearest(name, every)}"
            shown_value = _told(section, key, environ[name], sections)
            problems.append(ConfigProblem(name, shown_value, "is not a known setting", hint))
            continue
        raw.setdefault(section, {})[key] = Origin(_from_text(environ[name], known.get(key, ADDRESS)), name)


def _section_and_key(name: str, sections: Mapping[str, type | None]) -> tuple[str, str]:
    """Split tls_peer_key_file at a section of which the rest is a key; else at the first underscore."""
    for section, declared in sections.items():
        key = name.removeprefix(section.replace(".", "_") + "_")
        if declared is not None and key != name and key in keys_of(declared):
            return section, key
    section, _, key = name.partition("_")
    return section, key


def overlay_flags(raw: Raw, overrides: Mapping[str, object], sections: Mapping[str, type | None]) -> None:
    """Put flags ("section.key" → value; a text is read as in the environment) over the rest, in place."""
    for name, value in overrides.items():
        section, _, key = name.rpartition(".")
        declared = sections.get(section)
        kind = keys_of(declared).get(key) if declared else ADDRESS
        read = _from_text(value, kind) if isinstance(value, str) and kind else value
        raw.setdefault(section, {})[key] = Origin(read, "the command line")


def flag_overrides(settings: Sequence[str]) -> dict[str, object]:
    """Read the values of --set, SECTION.KEY=VALUE each, for `overlay_flags`.

    Raises:
        UsageError: one has not this form.
    """
    overrides: dict[str, object] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or "." not in name:
            # Without its value, which may be a secret; what has not the form of a name may be one as well.
            named = name if name.replace(".", "_").isidentifier() else "***"
            given = f"{named}=***" if equals else named
            raise UsageError(
                f"--set {given!r} is no setting", "give SECTION.KEY=VALUE, as limits.tick_ms=1000"
            )
        overrides[name.strip()] = value.strip()
    return overrides


def _from_text(value: str, kind: ValueKind) -> object:
    """Read a text as the TOML value that it would be in the file; anything else stays a text."""
    if kind.text:
        return value
    try:
        found: object = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        found = value
    if kind.listed and isinstance(found, str):
        return [each.strip() for each in found.split(",")]
    return found


def refuse_unknown(raw: Raw, sections: Mapping[str, type | None], problems: list[ConfigProblem]) -> None:
    """Add a problem for every section and key that is not known."""
    for section, values in raw.items():
        if section not in sections:
            remedy = f"remove it{nearest(section, sections)}"
            name = section if "." in section else f"[{section}]"
            problems.append(ConfigProblem(name, shown(sorted(values)), "is no known section", remedy))
            continue
        declared = sections[section]
        for key, origin in values.items():
            if declared is not None and key not in keys_of(declared):
                name = field_name(section, key, origin.source)
                remedy = f"remove it{nearest(key, keys_of(declared))}"
                shown_value = _told(section, key, origin.value, sections)
                problems.append(ConfigProblem(name, shown_value, "is no known key", remedy))


def read_section(
    declared: type[Section], section: str, raw: Raw, folder: Path, problems: list[ConfigProblem]
) -> Section | None:
    """Check the values of one section and build it.

    Args:
        declared: its dataclass.
        section: its name.
        raw: all layers, already put over each other.
        folder: where relative paths count from.
        problems: gets one for every value that is missing or wrong.

    Returns:
        The section, or None if it has a problem.
    """
    values: dict[str, Any] = {}
    given = raw.get(section, {})
    sound = True
    for each in dataclasses.fields(declared):  # type: ignore[arg-type]  # a dataclass by contract
        kind: ValueKind = each.metadata["kind"]
        origin = given.get(each.name)
        if origin is None:
            if each.default is dataclasses.MISSING:
                sound = False
                name = f"{section}.{each.name}"
                problems.append(ConfigProblem(name, "(not given)", "is needed", f"give {kind.wanted}"))
            continue
        try:
            values[each.name] = kind.read(origin.value, folder)
        except ValueError as error:
            sound = False
            name = field_name(section, each.name, origin.source)
            seen = "***" if each.metadata["secret"] else shown(origin.value)
            problems.append(ConfigProblem(name, seen, str(error), f"give {kind.wanted}"))
    return declared(**values) if sound else None


def masked_section(values: object) -> dict[str, object]:
    """Return the keys and values of a section for printing, secrets as "***" and empty ones as ""."""
    shown_values: dict[str, object] = {}
    for each in dataclasses.fields(values):  # type: ignore[arg-type]  # a dataclass by contract
        value = getattr(values, each.name)
        if each.metadata["secret"] and value:
            shown_values[each.name] = "***"
        elif isinstance(value, Path | Address):
            shown_values[each.name] = str(value)
        elif isinstance(value, tuple):
            shown_values[each.name] = [str(item) if isinstance(item, tuple) else item for item in value]
        else:
            shown_values[each.name] = value
    return shown_values
