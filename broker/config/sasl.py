"""How Kafka clients prove who they are on SASL listeners: the settings [sasl].

Decides which mechanisms a listener offers: PLAIN tells the password itself, so it needs TLS, unless
`plain_without_tls` says otherwise. No state.
Source: Kafka's broker configuration, "sasl.enabled.mechanisms", "connections.max.reauth.ms".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quorum.config.settings import BOOLEAN, ValueKind, integer, setting
from quorum.errors import ConfigProblem
from quorum.metadata.user_records import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
SASL_TLS_LISTENER: Final = "SASL_SSL"
SASL_LISTENER: Final = "SASL_PLAINTEXT"


def _read(value: object, _folder: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a list of texts")
    for each in value:
        if each == "OAUTHBEARER":
            raise ValueError("has OAUTHBEARER, which is not served yet")
        if each not in MECHANISMS:
            raise ValueError(f"has {each!r}, which is no mechanism")
    return tuple(dict.fromkeys(value))


@dataclass(frozen=True, slots=True)
class SaslSection:
    """What SASL listeners take as proof."""

    enabled_mechanisms: tuple[str, ...] = setting(
        ValueKind(f"a list out of {', '.join(MECHANISMS)}", _read, listed=True), ()
    )
    #: whether passwords may pass where everybody on the way can read them
    plain_without_tls: bool = setting(BOOLEAN, False)
    #: a connection must prove itself again after so long; 0: never
    connections_max_reauth_ms: int = setting(integer(0, 2**31 - 1), 0)

    def offered(self, listener: str) -> tuple[str, ...]:
        """Return the mechanisms of a listener, by its name."""
        takes_plain = listener == SASL_TLS_LISTENER or self.plain_without_tls
        return tuple(each for each in self.enabled_mechanisms if takes_plain or each != PLAIN)


def check_sasl(sasl: SaslSection, listeners: Collection[str], problems: list[ConfigProblem]) -> None:
    """Note SASL listeners that could let nobody in, and mechanisms without a listener."""
    spoken = [each for each in (SASL_TLS_LISTENER, SASL_LISTENER) if each in listeners]
    mechanisms = ", ".join(sasl.enabled_mechanisms) or "[]"
    for each in spoken:
        if sasl.offered(each):
            continue
        problem, remedy = f"names no mechanism, and listen.listeners has {each}", 'give as ["SCRAM-SHA-256"]'
        if sasl.enabled_mechanisms:
            problem = f"leaves {each} nothing: PLAIN would send passwords that everybody on the way can read"
            remedy = "give a SCRAM mechanism, use SASL_SSL, or set sasl.plain_without_tls"
        problems.append(ConfigProblem("sasl.enabled_mechanisms", mechanisms, problem, remedy))
    if sasl.enabled_mechanisms and not spoken:
        problem = "has no listener that asks for a proof"
        remedy = "give SASL_SSL://host:port in listen.listeners, or remove it"
        problems.append(ConfigProblem("sasl.enabled_mechanisms", mechanisms, problem, remedy))
