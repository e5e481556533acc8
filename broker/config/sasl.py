"""How Kafka clients prove who they are on SASL listeners: the settings [sasl].

Decides which mechanisms a listener offers: PLAIN tells the password itself, and OAUTHBEARER a token, so they
need TLS, unless `plain_without_tls` says otherwise. No state.
Source: Kafka's broker configuration, "sasl.enabled.mechanisms", "connections.max.reauth.ms",
"sasl.oauthbearer…".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from quorum.config.settings import BOOLEAN, ValueKind, integer, setting, text, texts
from quorum.errors import ConfigProblem
from quorum.metadata.user_records import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
#: what is sent by them is as good as the proof itself
_TELLING: Final = (PLAIN, OAUTHBEARER)
_KEYS: Final = "sasl.oauthbearer_jwks_endpoint_url"
_NAME: Final = r"[!-~]+"
SASL_TLS_LISTENER: Final = "SASL_SSL"
SASL_LISTENER: Final = "SASL_PLAINTEXT"


def _read(value: object, _folder: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a list of texts")
    for each in value:
        if each not in MECHANISMS:
            raise ValueError(f"has {each!r}, which is no mechanism")
    return tuple(dict.fromkeys(value))


@dataclass(frozen=True, slots=True)
class SaslSection:
    """What SASL listeners take as proof."""

    enabled_mechanisms: tuple[str, ...] = setting(
        ValueKind(f"a list out of {', '.join(MECHANISMS)}", _read, listed=True), ()
    )
    #: whether passwords and tokens may pass where everybody on the way can read them
    plain_without_tls: bool = setting(BOOLEAN, False)
    #: a connection must prove itself again after so long; 0: never
    connections_max_reauth_ms: int = setting(integer(0, 2**31 - 1), 0)
    #: the keys that sign tokens, a JSON Web Key Set; read again for a key id that it lacks
    oauthbearer_jwks_endpoint_url: str = setting(
        text(r"|file:///[!-~]+|https://[^/@\s?#]+(/[!-~]*)?", "file:///PATH or https://HOST/PATH"), ""
    )
    #: tokens are for one of these; []: for anybody
    oauthbearer_expected_audience: tuple[str, ...] = setting(texts(_NAME, "name"), ())
    #: who made tokens; "": anybody with one of the keys
    oauthbearer_expected_issuer: str = setting(text(f"|{_NAME}", "a name"), "")
    #: the claim that is the user's name
    oauthbearer_sub_claim_name: str = setting(text(_NAME, "the name of a claim"), "sub")

    def offered(self, listener: str) -> tuple[str, ...]:
        """Return the mechanisms of a listener, by its name."""
        may_tell = listener == SASL_TLS_LISTENER or self.plain_without_tls
        return tuple(each for each in self.enabled_mechanisms if may_tell or each not in _TELLING)


def check_sasl(sasl: SaslSection, listeners: Collection[str], problems: list[ConfigProblem]) -> None:
    """Note SASL listeners that could let nobody in, and mechanisms without a listener."""
    spoken = [each for each in (SASL_TLS_LISTENER, SASL_LISTENER) if each in listeners]
    mechanisms = ", ".join(sasl.enabled_mechanisms) or "[]"
    for each in spoken:
        if sasl.offered(each):
            continue
        problem, remedy = f"names no mechanism, and listen.listeners has {each}", 'give as ["SCRAM-SHA-256"]'
        if sasl.enabled_mechanisms:
            told = "PLAIN and OAUTHBEARER would send passwords and tokens"
            problem = f"leaves {each} nothing: {told} that everybody on the way can read"
            remedy = "give a SCRAM mechanism, use SASL_SSL, or set sasl.plain_without_tls"
        problems.append(ConfigProblem("sasl.enabled_mechanisms", mechanisms, problem, remedy))
    if sasl.enabled_mechanisms and not spoken:
        problem = "has no listener that asks for a proof"
        remedy = "give SASL_SSL://host:port in listen.listeners, or remove it"
        problems.append(ConfigProblem("sasl.enabled_mechanisms", mechanisms, problem, remedy))
    _check_tokens(sasl, problems)


def _check_tokens(sasl: SaslSection, problems: list[ConfigProblem]) -> None:
    is_used, url = OAUTHBEARER in sasl.enabled_mechanisms, sasl.oauthbearer_jwks_endpoint_url
    if is_used and not url:
        problem, remedy = "is not set, and OAUTHBEARER needs keys", "give file:///PATH or https://HOST/PATH"
        problems.append(ConfigProblem(_KEYS, '""', problem, remedy))
    if url.startswith("file:") and not Path(unquote(urlsplit(url).path)).is_file():
        problems.append(ConfigProblem(_KEYS, url, "names no file", "give the path of a JSON Web Key Set"))
    if is_used and find_spec("jwt") is None:
        problem, remedy = "has OAUTHBEARER, which needs PyJWT", "pip install 'quorate[oauth]'"
        problems.append(ConfigProblem("sasl.enabled_mechanisms", OAUTHBEARER, problem, remedy))
    others = {
        _KEYS: url,
        "sasl.oauthbearer_expected_audience": ", ".join(sasl.oauthbearer_expected_audience),
        "sasl.oauthbearer_expected_issuer": sasl.oauthbearer_expected_issuer,
    }
    for field, value in others.items():
        if value and not is_used:
            problem = "counts for OAUTHBEARER alone"
            remedy = "add OAUTHBEARER to sasl.enabled_mechanisms, or remove it"
            problems.append(ConfigProblem(field, value, problem, remedy))
