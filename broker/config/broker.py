"""The configuration of one broker: its sections as a whole, and the relations that must hold between them.

Layers, the later ones win: the defaults of the sections, broker.toml, the environment
(QUORATE_BROKER_<SECTION>_<KEY>), flags. The result is frozen. Every problem is reported in one error that
names section.key, the value and the remedy. What a key does is decided where it is used; nothing here opens a
socket or a data directory.
Source: the names are Kafka's with `_` for `.`; deploy/broker.toml shows all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from broker.config.listeners import (
    BROKER_TLS,
    AdvertisedSection,
    BrokerListenSection,
    check_advertised,
    check_listen,
    optional_address,
)
from broker.config.sasl import SASL_TLS_LISTENER, SaslSection, check_sasl
from broker.config.sections import (
    BROKER_ID_MAX,
    BrokerLimitsSection,
    BrokerSection,
    CleanerSection,
    GroupsSection,
    QuorumSection,
    TopicsSection,
    TransactionsSection,
)
from broker.config.security import BrokerSecuritySection
from controller.core.brokers import CLIENT_LISTENER, TLS_LISTENER
from quorum.config.address import Address, parse_member_address
from quorum.config.admin_port import check_admin_port
from quorum.config.audit import AuditSection, check_audit
from quorum.config.log import LogSection
from quorum.config.logins import QUORUM_LOGIN, check_login
from quorum.config.node import read_peer_secrets
from quorum.config.settings import (
    BROKER_PREFIX,
    Origin,
    Raw,
    collect_file,
    collect_sections,
    field_name,
    masked_section,
    overlay_environment,
    overlay_flags,
    read_section,
    refuse_unknown,
)
from quorum.config.tls import (
    BrokerTlsSection,
    TlsSection,
    check_tls,
    read_tls,
    tls_sections,
)
from quorum.errors import ConfigError, ConfigProblem, shown
from quorum.metadata.topic_settings import TopicSettings

#: None: the keys are broker ids, the values addresses
SECTIONS: dict[str, type | None] = {
    "broker": BrokerSection,
    "listen": BrokerListenSection,
    "advertised": AdvertisedSection,
    "dial": None,
    "quorum": QuorumSection,
    "topics": TopicsSection,
    "groups": GroupsSection,
    "transactions": TransactionsSection,
    "limits": BrokerLimitsSection,
    "cleaner": CleanerSection,
    "security": BrokerSecuritySection,
    "sasl": SaslSection,
    "audit": AuditSection,
    "log": LogSection,
    **tls_sections(BrokerTlsSection, BROKER_TLS),
}


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The whole configuration of one broker, checked.

    Attributes:
        dial: {broker id: address of its broker listener}, over what the broker advertises; for proxies.
        topics: the default of every topic setting.
        tls: {NAME: its settings}; "tls": what the others have unless they say another thing.
    """

    broker: BrokerSection
    listen: BrokerListenSection
    advertised: AdvertisedSection
    dial: Mapping[int, Address]
    quorum: QuorumSection
    topics: TopicSettings
    groups: GroupsSection
    transactions: TransactionsSection
    limits: BrokerLimitsSection
    cleaner: CleanerSection
    security: BrokerSecuritySection
    sasl: SaslSection
    audit: AuditSection
    log: LogSection
    tls: Mapping[str, TlsSection]

    def masked(self) -> str:
        """Return the configuration as one line of JSON for the log."""
        sections: dict[str, object] = {
            name: masked_section(getattr(self, name))
            for name, kind in SECTIONS.items()
            if kind not in (None, TopicsSection, BrokerTlsSection)
        }
        sections["topics"] = asdict(self.topics)
        sections["dial"] = {str(broker_id): str(address) for broker_id, address in self.dial.items()}
        sections["tls"] = {name: masked_section(self.tls[name]) for name in self.tls_used()}
        return json.dumps(sections)

    def tls_used(self) -> dict[str, str]:
        """Return {NAME of [tls.NAME] that is in use: the setting that makes it so}."""
        return _tls_used(self.listen, self.security, self.quorum)

    def advertised_clients(self) -> dict[str, Address]:
        """Return {listener: what Kafka clients dial}, the plain one first."""
        plain = optional_address(self.advertised.client) or self.listen.client
        found = {} if plain is None else {CLIENT_LISTENER: plain}
        return {**found, **dict(self.listen.listeners), **dict(self.advertised.listeners)}

    def advertised_broker(self) -> Address:
        """Return what the controller and followers dial."""
        return optional_address(self.advertised.broker) or self.listen.broker


def _tls_used(
    listen: BrokerListenSection, security: BrokerSecuritySection, quorum: QuorumSection
) -> dict[str, str]:
    used = {
        "ssl": (TLS_LISTENER in dict(listen.listeners), "listen.listeners"),
        "sasl_ssl": (SASL_TLS_LISTENER in dict(listen.listeners), "listen.listeners"),
        "broker": (security.inter_broker_protocol == "ssl", "security.inter_broker_protocol"),
        "admin": (security.admin_ssl, "security.admin_ssl"),
        "quorum": (quorum.ssl, "quorum.ssl"),
    }
    return {name: setting_name for name, (is_used, setting_name) in used.items() if is_used}


def load_broker_config(
    path: Path | str, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> BrokerConfig:
    """Read broker.toml, the environment and flags.

    Args:
        path: the file.
        environ: the process's environment; None: without one.
        overrides: flags, "section.key" → value.

    Raises:
        ConfigError: with every problem found. Definite: nothing was started or written.
    """
    file = Path(path).absolute()
    return _build(collect_file(file), file.parent, environ or {}, overrides or {})


def broker_config(sections: Mapping[str, Mapping[str, object]], folder: Path) -> BrokerConfig:
    """Check a configuration that did not come from a file.

    Args:
        sections: section → key → value, as broker.toml would have them.
        folder: where relative paths count from.

    Raises:
        ConfigError: as load_broker_config.
    """
    return _build(collect_sections(sections), folder, {}, {})


def _build(
    raw: Raw, folder: Path, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> BrokerConfig:
    problems: list[ConfigProblem] = []
    overlay_environment(raw, environ, SECTIONS, problems, BROKER_PREFIX)
    overlay_flags(raw, overrides, SECTIONS)
    refuse_unknown(raw, SECTIONS, problems)
    broker = read_section(BrokerSection, "broker", raw, folder, problems)
    listen = read_section(BrokerListenSection, "listen", raw, folder, problems)
    advertised = read_section(AdvertisedSection, "advertised", raw, folder, problems)
    dial = _read_dial(raw.get("dial", {}), problems)
    quorum = read_section(QuorumSection, "quorum", raw, folder, problems)
    topics = read_section(TopicsSection, "topics", raw, folder, problems)
    groups = read_section(GroupsSection, "groups", raw, folder, problems)
    transactions = read_section(TransactionsSection, "transactions", raw, folder, problems)
    limits = read_section(BrokerLimitsSection, "limits", raw, folder, problems)
    cleaner = read_section(CleanerSection, "cleaner", raw, folder, problems)
    security = read_section(BrokerSecuritySection, "security", raw, folder, problems)
    sasl = read_section(SaslSection, "sasl", raw, folder, problems)
    audit = read_section(AuditSection, "audit", raw, folder, problems)
    log = read_section(LogSection, "log", raw, folder, problems)
    tls = read_tls(BrokerTlsSection, BROKER_TLS, raw, folder, problems)
    if audit:
        check_audit(audit, problems)
    if listen:
        check_listen(listen, problems)
    _check_proofs(quorum, listen, sasl, problems)
    if advertised:
        check_advertised(advertised, listen, problems)
    if security:
        try:
            read_peer_secrets(security.peer_secret_file)
        except ConfigError as error:
            problems.extend(error.problems)
        check_admin_port(listen.admin if listen else None, security, tls.get("admin"), problems)
        if security.inter_broker_protocol == "ssl" and not security.super_users:
            problem = "names nobody, and inter_broker_protocol is ssl: every broker would be refused"
            remedy = 'name the certificates of all brokers, as ["User:CN=broker-1", "User:CN=broker-2"]'
            problems.append(ConfigProblem("security.super_users", "[]", problem, remedy))
        if listen and quorum:
            check_tls(tls, BROKER_TLS, _tls_used(listen, security, quorum), problems)
    if groups:
        _check_groups(groups, problems)
    if topics and limits and topics.segment_bytes < limits.segment_bytes_min:
        problem = f"is below limits.segment_bytes_min, {limits.segment_bytes_min}"
        problems.append(ConfigProblem("topics.segment_bytes", str(topics.segment_bytes), problem, "raise it"))
    if limits:
        _check_limits(limits, problems)
    if problems or not (broker and listen and advertised and quorum and audit and log):
        raise ConfigError.of(problems)
    if not (topics and groups and transactions and limits and cleaner and security and sasl):
        raise ConfigError.of(problems)
    defaults = TopicSettings(**asdict(topics))
    return BrokerConfig(
        broker,
        listen,
        advertised,
        MappingProxyType(dial),
        quorum,
        defaults,
        groups,
        transactions,
        limits,
        cleaner,
        security,
        sasl,
        audit,
        log,
        MappingProxyType(tls),
    )


def _check_proofs(
    quorum: QuorumSection | None,
    listen: BrokerListenSection | None,
    sasl: SaslSection | None,
    problems: list[ConfigProblem],
) -> None:
    """Check by what the broker proves itself to the quorum, and by what its clients do to it."""
    if quorum:
        check_login(quorum.sasl_username, quorum.sasl_password_file, QUORUM_LOGIN, problems)
    if listen and sasl:
        check_sasl(sasl, dict(listen.listeners), problems)


def _check_groups(groups: GroupsSection, problems: list[ConfigProblem]) -> None:
    low, high = groups.group_min_session_timeout_ms, groups.group_max_session_timeout_ms
    if low > high:
        problem = f"is below groups.group_min_session_timeout_ms, {low}"
        problems.append(ConfigProblem("groups.group_max_session_timeout_ms", str(high), problem, "raise it"))
    session_ms = groups.group_consumer_session_timeout_ms
    if groups.group_consumer_heartbeat_interval_ms >= session_ms:
        name = "groups.group_consumer_heartbeat_interval_ms"
        problem = f"is not below groups.group_consumer_session_timeout_ms, {session_ms}"
        value = str(groups.group_consumer_heartbeat_interval_ms)
        problems.append(ConfigProblem(name, value, problem, "make it a third of the session timeout"))


def _check_limits(limits: BrokerLimitsSection, problems: list[ConfigProblem]) -> None:
    total = limits.received_bytes_total_max
    if total < limits.frame_bytes_max:
        problem = f"is below limits.frame_bytes_max, {limits.frame_bytes_max}"
        remedy = "raise it, or no request of that size ever arrives"
        problems.append(ConfigProblem("limits.received_bytes_total_max", str(total), problem, remedy))


def _read_dial(given: Mapping[str, Origin], problems: list[ConfigProblem]) -> dict[int, Address]:
    dial: dict[int, Address] = {}
    example = 'give lines of the form 1 = "127.0.0.1:9192" with broker ids'
    for key, origin in given.items():
        name = field_name("dial", key, origin.source)
        if not key.isascii() or not key.isdigit() or str(int(key[:11])) != key or int(key) > BROKER_ID_MAX:
            problems.append(ConfigProblem(name, shown(origin.value), "is not a broker id", example))
            continue
        try:
            dial[int(key)] = parse_member_address(origin.value if isinstance(origin.value, str) else "")
        except ValueError as error:
            problems.append(ConfigProblem(name, shown(origin.value), str(error), example))
    return dict(sorted(dial.items()))
