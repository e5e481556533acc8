"""The section [security] of broker.toml: how brokers prove themselves, and who decides what clients may do.

What a key does is decided where it is used; nothing here reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.config.principals import MappingRule
from quorum.config.node import HOST_NAME
from quorum.config.settings import BOOLEAN, OPTIONAL_PATH, PATH, ValueKind, setting, text, texts


def _rules(value: object, _folder: Path) -> tuple[MappingRule, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a list of rules")
    rules = []
    for each in value:
        try:
            rules.append(MappingRule.parse(each))
        except ValueError as error:
            raise ValueError(f"has {each!r}, which {error}") from error
    return tuple(rules)


_RULES = ValueKind('a list of rules, as ["RULE:^CN=([^,]+).*$/$1/L", "DEFAULT"]', _rules, listed=True)
_AUTHORIZER = text(
    r"|(kafka\.security\.authorizer\.)?AclAuthorizer",
    '"AclAuthorizer", kafka.security.authorizer.AclAuthorizer, or ""',
)


@dataclass(frozen=True, slots=True)
class BrokerSecuritySection:
    """How brokers prove themselves to each other."""

    #: the same bytes at every broker; surrounding white space does not count
    peer_secret_file: Path = setting(PATH)
    #: how brokers reach each other: "secret" proves the peer secret, "ssl" does so within TLS, [tls.broker]
    inter_broker_protocol: str = setting(text("secret|ssl", "secret or ssl"), "secret")
    #: principals that may do everything; by TLS the broker listener takes their certificates alone
    super_users: tuple[str, ...] = setting(texts(r"User:.+", "principal", '["User:admin"]'), ())
    #: whether znodes of the brokers may be changed by holders of the secret alone; a protected tree stays so
    protect_znodes: bool = setting(BOOLEAN, False)
    #: who decides what clients may do: "AclAuthorizer" by access lists in the quorum, nobody if it is empty
    authorizer_class_name: str = setting(_AUTHORIZER, "")
    #: how the subject of a client's certificate becomes its principal
    ssl_principal_mapping_rules: tuple[MappingRule, ...] = setting(_RULES, (MappingRule(),))
    #: whether everybody may use what no access list is about
    allow_everyone_if_no_acl_found: bool = setting(BOOLEAN, False)
    #: names by which the admin port may be asked, as a node's
    admin_hosts: tuple[str, ...] = setting(texts(HOST_NAME, "host name"), ("localhost",))
    #: lines "NAME ROLE TOKEN" or "NAME ROLE dn:SUBJECT": who may ask the admin port what
    admin_tokens_file: Path | None = setting(OPTIONAL_PATH, None)
    #: older: one token of an admin and one of a reader; both or none
    admin_operate_token_file: Path | None = setting(OPTIONAL_PATH, None)
    admin_read_token_file: Path | None = setting(OPTIONAL_PATH, None)
    #: a proxy before the admin port encrypts; off loopback it is this or admin_ssl
    admin_behind_proxy: bool = setting(BOOLEAN, False)
    #: the admin port speaks TLS, [tls.admin]
    admin_ssl: bool = setting(BOOLEAN, False)
