"""How the subject of a certificate becomes the name of a principal.

Pure. Rules are tried in their order: "DEFAULT" takes the whole subject, "RULE:pattern/replacement/" what the
pattern matches as a whole, with L or U behind it in small or capital letters. $1 is a group of the pattern.
Source: Kafka's ssl.principal.mapping.rules (KIP-371, KIP-409), SslPrincipalMapper (3.9).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_GROUP: Final = re.compile(r"\$(\d)")


class MappingRule(NamedTuple):
    """One rule; without a pattern it takes the whole subject."""

    pattern: re.Pattern[str] | None = None
    #: a template for `Match.expand`
    template: str = ""
    #: "L", "U" or ""
    case: str = ""
    #: as it was given
    text: str = DEFAULT

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(cls, text: str) -> MappingRule:
        """Read a rule; raises ValueError with what is wrong with it."""
        if text == DEFAULT:
            return cls()
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError("is neither DEFAULT nor RULE:pattern/replacement/ with L or U behind it")
        try:
            pattern = re.compile(found[1])
        except re.error as error:
            raise ValueError(f"has a pattern that cannot be read: {error}") from error
        numbers = [int(each) for each in _GROUP.findall(found[2])]
        if any(number > pattern.groups for number in numbers):
            raise ValueError(f"names group {max(numbers)}, and its pattern has {pattern.groups}")
        template = _GROUP.sub(r"\\g<\1>", found[2].replace("\\", "\\\\"))
        return cls(pattern, template, found[3], text)

    def name(self, subject: str) -> str | None:
        """Return the name for a subject; None: the rule is not for it."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = found.expand(self.template)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def principal_of(subject: str, rules: Sequence[MappingRule]) -> str | None:
    """Return the principal of a subject, "User:alice"; None: no rule is for it."""
    names = (rule.name(subject) for rule in rules)
    name = next((each for each in names if each is not None), None)
    return None if name is None else f"User:{name}"
