"""What somebody wants of the settings of one topic or broker, and what becomes of them. Pure.

Decides nothing about a value: the result is checked where the settings are. Items of a list are appended if
it does not have them yet, and subtracted if it has them; a list that is not set begins with its default.
Source: Kafka's AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-339).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorum.metadata.errors import NotAListError
from quorum.metadata.topic_setting_rows import items_of


@dataclass(frozen=True, slots=True)
class SettingChanges:
    """Changes of settings; each setting is named once."""

    #: {Kafka's name: text}
    changed: Mapping[str, str] = field(default_factory=dict)
    #: Back to their defaults.
    removed: Sequence[str] = ()
    #: {Kafka's name: items with commas between them}
    appended: Mapping[str, str] = field(default_factory=dict)
    subtracted: Mapping[str, str] = field(default_factory=dict)
    #: Whether all settings that are not named go back to their defaults.
    is_whole: bool = False

    def applied(self, before: Mapping[str, str], lists: Mapping[str, str | None]) -> dict[str, str]:
        """Return the settings afterwards.

        Args:
            before: {Kafka's name: text} of what is set now.
            lists: {every known setting: its default if it is a list, else None}; an unknown one counts as a
                list.

        Raises:
            NotAListError: something is to be appended to a setting that is not a list, or subtracted from it.
        """
        after = dict(self.changed) if self.is_whole else {**before, **self.changed}
        for name, value in self.appended.items():
            have = items_of(after.get(name, _default(lists, name, value, "append")))
            after[name] = ",".join([*have, *(each for each in items_of(value) if each not in have)])
        for name, value in self.subtracted.items():
            have = items_of(after.get(name, _default(lists, name, value, "subtract")))
            after[name] = ",".join(each for each in have if each not in items_of(value))
        return {name: value for name, value in after.items() if name not in self.removed}

    def named(self, after: Mapping[str, str]) -> dict[str, str]:
        """Return what the settings that are named have afterwards, but for those that are removed."""
        names = (*self.changed, *self.appended, *self.subtracted)
        return {name: after[name] for name in names if name in after}


def _default(lists: Mapping[str, str | None], name: str, value: str, operation: str) -> str:
    default = lists.get(name, "")
    if default is None:
        raise NotAListError(name, value, operation, "set it as a whole")
    return default
