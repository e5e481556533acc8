"""docs/reference/settings.md: every setting of nodes, brokers and topics.

Kinds and defaults are those that the code declares; what a setting does is said once, in the comments of the
sample configurations. A setting without a comment is an error.
Source: quorum/config/node.py, broker/config/broker.py, deploy/node.toml, deploy/broker.toml.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from broker.config.broker import SECTIONS as BROKER_SECTIONS
from quorum.config.node import SECTIONS as NODE_SECTIONS
from quorum.config.profiles import DEFAULT_FILE, FILE_VARIABLE, NAME_VARIABLE, PROFILE_OPTIONS
from quorum.metadata.broker_settings import BROKER_SETTINGS
from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, text_of
from tests.site.tables import NOTE, anchored, cell, code, joined, sentence, table
from tests.tidy.rules import REPOSITORY

_KEY: Final = re.compile(r"(\w+) = (.*?)(?:\s+# (.*))?")
_SECTION: Final = re.compile(r"\[(\w+)\](?:\s+# (.*))?")
#: {end of a setting's name: its unit}
_UNITS: Final = {
    "_ms": "ms",
    "_bytes": "bytes",
    "_bytes_max": "bytes",
    "_bytes_min": "bytes",
    "_bytes_total_max": "bytes",
    "_max_bytes": "bytes",
    "_per_second": "bytes/s",
    "_minutes": "minutes",
    "_percentage": "%",
    "_buffer_size": "bytes",
}
#: What is said of all paths at once.
_FROM_FOLDER: Final = "; a relative one counts from the folder of the configuration file"
#: Settings that name a file which a process reads again.
_READ_AGAIN: Final = re.compile(r"\w+_file|oauthbearer_jwks_endpoint_url")

_HEAD: Final = f"""# Settings

What a node (`node.toml`), a broker (`broker.toml`), a topic and a profile of the command line can be told.
{NOTE}
The words are those of [node.toml](../../deploy/node.toml) and [broker.toml](../../deploy/broker.toml), which
show every setting with its default.

- A setting is given in the file, by an environment variable, or by `--set SECTION.KEY=VALUE`. The later ones
  of these win.
- An unknown or malformed setting is an error, which names the setting, its value and the remedy. The process
  does not start.
- A process reads its settings once, so a change needs a restart. A file that is read again counts within a
  minute, or at once after SIGHUP.
- [What a broker changes while it runs](#broker-settings-that-change-while-it-runs) and
  [the settings of a topic](#topics) need no restart.
- Paths that are relative count from the folder of the configuration file.
"""


def comments(sample: Path) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return what a sample says: {section: its comment}, {(section, key): the comment beside it}."""
    sections: dict[str, str] = {}
    keys: dict[tuple[str, str], str] = {}
    section = ""
    for line in sample.read_text("utf-8").splitlines():
        if found := _SECTION.fullmatch(line):
            section = found[1]
            sections[section] = found[2] or ""
        elif section and (found := _KEY.fullmatch(line)):
            keys[section, found[1]] = found[3] or ""
    return sections, keys


def unit(key: str) -> str:
    """Return the unit that a name ends with; "": none."""
    return next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")


def default(value: Any) -> str:
    """Return a default as the file would have it."""
    return "must be given" if value is dataclasses.MISSING else code(_toml(value))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    # A named tuple, as an address is, has a text.
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{"" if value is None else value}"'


def _rows(
    process: str, section: str, declared: type, said: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, ...]]:
    for field in dataclasses.fields(declared):
        words = said[section, field.name]
        if not words:
            raise ValueError(f"{process}.toml says nothing of {section}.{field.name}")
        again = ". The file is read again" if _READ_AGAIN.fullmatch(field.name) else ""
        wanted = field.metadata["kind"].wanted.removesuffix(_FROM_FOLDER)
        yield (
            anchored(f"{process}.{section}.{field.name}", field.name),
            cell(wanted),
            default(field.default),
            unit(field.name),
            cell(sentence(re.sub(r"^true:", "`true`:", words)) + again),
        )


def _process(process: str, sections: Mapping[str, type | None], prefix: str) -> Iterator[str]:
    sample = REPOSITORY / f"deploy/{process}.toml"
    about, said = comments(sample)
    yield f"## {process}.toml"
    yield f"The environment overrides each of these as `{prefix}<SECTION>_<KEY>`."
    for section, declared in sections.items():
        if "." in section:
            continue
        yield f'### <a id="{process}.{section}"></a>[{section}] of {process}.toml'
        if about[section]:
            yield f"{sentence(about[section])}."
        if declared is None:
            yield "Its keys are ids, and its values are addresses of the form `host:port`."
            continue
        head = ("setting", "value", "default", "unit", "what it does")
        yield table(head, _rows(process, section, declared, said))


def _topics() -> Iterator[str]:
    yield "## Topics"
    yield (
        "A topic's own settings win over the defaults of `[topics]` in broker.toml, and count at once. "
        "Set them with `quorate topics`, or with Kafka's tools."
    )
    rows = [
        (
            anchored(f"topic.{row.name}", row.name),
            cell(row.wanted),
            code(text_of(row.default)) if text_of(row.default) else '`""`',
            cell(row.documentation + (f" No effect: {row.no_effect}." if row.no_effect else "")),
        )
        for row in TOPIC_SETTINGS.values()
    ]
    yield table(("setting", "value", "default", "what it does"), rows)


def _changing() -> Iterator[str]:
    yield "## Broker settings that change while it runs"
    yield "Kafka's tools set these for one broker, or for all. The quorum keeps them, and they count at once."
    rows = [(anchored(f"running.{name}", name), cell(what)) for name, what in BROKER_SETTINGS.items()]
    yield table(("setting", "what it does"), rows)


def _command_line() -> Iterator[str]:
    yield "## Profiles of the command line"
    yield (
        f"`quorate --profile NAME` takes options from the table `[NAME]` of `{DEFAULT_FILE}`. "
        "An option on the command line wins."
    )
    rows = [(anchored(f"profile.{key}", key), code(option)) for key, option in PROFILE_OPTIONS.items()]
    yield table(("key", "option that it stands for"), rows)
    yield "## Environment"
    rows = [
        (code("QUORATE_<SECTION>_<KEY>"), "A setting of a node; a dot of the section's name is `_`."),
        (code("QUORATE_BROKER_<SECTION>_<KEY>"), "A setting of a broker, likewise."),
        (code(NAME_VARIABLE), "The profile of a command without `--profile`."),
        (code(FILE_VARIABLE), f"The file of profiles, in place of `{DEFAULT_FILE}`."),
    ]
    yield table(("variable", "what it gives"), rows)
    yield (
        "An unknown variable that begins so is an error, other than those that Kubernetes sets for a Service."
    )


def page() -> str:
    """Return the page as the code and the samples are."""
    return joined(
        [
            _HEAD,
            *_process("node", NODE_SECTIONS, "QUORATE_"),
            *_process("broker", BROKER_SECTIONS, "QUORATE_BROKER_"),
            *_changing(),
            *_topics(),
            *_command_line(),
        ]
    )
