"""The configuration of one broker: sections, keys, defaults, and the relations that must hold between them.

Layers, the later ones win: the defaults below, broker.toml, the environment (QUORATE_BROKER_<SECTION>_<KEY>),
flags. The result is frozen. Every problem is reported in one error that names section.key, the value and the
remedy. What a key does is decided where it is used; nothing here opens a socket or a data directory.
Source: the names are Kafka's with `_` for `.`; deploy/broker.toml shows all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from broker.config.listeners import (
    BROKER_TLS,
    AdvertisedSection,
    BrokerListenSection,
    check_advertised,
    check_listen,
    optional_address,
)
from broker.config.principals import MappingRule
from broker.config.sasl import SASL_TLS_LISTENER, SaslSection, check_sasl
from controller.core.brokers import CLIENT_LISTENER, TLS_LISTENER
from quorum.config.address import Address, parse_member_address
from quorum.config.admin_port import check_admin_port
from quorum.config.audit import AuditSection, check_audit
from quorum.config.node import HOST_NAME, read_peer_secrets
from quorum.config.settings import (
    BOOLEAN,
    BROKER_PREFIX,
    OPTIONAL_PATH,
    PATH,
    Origin,
    Raw,
    ValueKind,
    collect_file,
    collect_sections,
    field_name,
    integer,
    masked_section,
    overlay_environment,
    overlay_flags,
    read_section,
    refuse_unknown,
    setting,
    text,
    texts,
)
from quorum.config.tls import BrokerTlsSection, TlsSection, check_tls, read_tls, tls_sections
from quorum.errors import ConfigError, ConfigProblem, shown
from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, Value, text_of
from quorum.metadata.topic_settings import SEGMENT_BYTES_MIN, TopicSettings

BROKER_ID_MAX = 2**31 - 1
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000


def _hosts(value: object, _folder: Path) -> tuple[Address, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("is not a list of host:port")
    return tuple(parse_member_address(each if isinstance(each, str) else "") for each in value)


_HOSTS = ValueKind('a list of host:port, as ["127.0.0.1:2181"]', _hosts, listed=True)


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
class BrokerSection:
    """The broker's identity, and how it takes part in the cluster."""

    id: int = setting(integer(0, BROKER_ID_MAX))
    data_dir: Path = setting(PATH)
    rack: str = setting(text(r"[^\x00-\x1f]{0,249}", "a name of at most 249 characters"), "")
    session_timeout_ms: int = setting(integer(100, _HOUR_MS), 6000)
    replica_lag_time_max_ms: int = setting(integer(100, _HOUR_MS), 30_000)
    control_request_timeout_ms: int = setting(integer(100, _HOUR_MS), 30_000)
    #: how the controller's requests reach brokers; the setting of the broker that is elected counts
    channel: str = setting(text("direct|queue", "direct or queue"), "direct")
    #: how often a broker that stops asks again that others lead what it leads; 0: it asks once
    controlled_shutdown_max_retries: int = setting(integer(0, 100), 3)
    controlled_shutdown_retry_backoff_ms: int = setting(integer(1, _HOUR_MS), 5_000)
    #: whether the controller gives leaderships back to preferred replicas by itself
    auto_leader_rebalance_enable: bool = setting(BOOLEAN, True)
    leader_imbalance_check_interval_ms: int = setting(integer(10, 24 * _HOUR_MS), 300_000)
    #: leaderships that a broker may lack, in percent of those that are preferably its
    leader_imbalance_per_broker_percentage: int = setting(integer(0, 100), 10)
    auto_create_topics: bool = setting(BOOLEAN, False)
    num_partitions: int = setting(integer(1, 100_000), 1)
    default_replication_factor: int = setting(integer(1, 1000), 1)
    #: where the steps of the controller's and the replicas' machines are recorded, for reports of faults
    record_dir: Path | None = setting(OPTIONAL_PATH, None)


@dataclass(frozen=True, slots=True)
class QuorumSection:
    """The metadata quorum."""

    hosts: tuple[Address, ...] = setting(_HOSTS, (Address("127.0.0.1", 2181),))
    #: dial them by TLS, [tls.quorum]
    ssl: bool = setting(BOOLEAN, False)


@dataclass(frozen=True, slots=True)
class GroupsSection:
    """Consumer groups; the names are Kafka's where it has such a setting."""

    group_min_session_timeout_ms: int = setting(integer(1, 2**31 - 1), 1_000)
    group_max_session_timeout_ms: int = setting(integer(1, 2**31 - 1), 1_800_000)
    #: how long the first members of an empty group wait for others
    group_initial_rebalance_delay_ms: int = setting(integer(0, _HOUR_MS), 3_000)
    #: members of a group
    group_max_size: int = setting(integer(1, 100_000), 1_000)
    #: what the members of a group send to each other, in bytes as it is stored
    group_bytes_max: int = setting(integer(1024, 16 * _MIB), 8 * _MIB)
    groups_max: int = setting(integer(1, 1_000_000), 10_000)
    #: what all groups hold in the memory of each node of the quorum, offsets included, roughly
    groups_bytes_max: int = setting(integer(_MIB, 1024 * 1024 * _MIB), 128 * _MIB)
    #: how often a write of a group is repeated whose outcome is unknown, or whose ground has moved
    rebalance_retries_max: int = setting(integer(0, 100), 7)
    #: of groups whose coordinator assigns: a member that is silent for so long is dead
    group_consumer_session_timeout_ms: int = setting(integer(100, _HOUR_MS), 45_000)
    #: how often such a member shall be heard
    group_consumer_heartbeat_interval_ms: int = setting(integer(10, _HOUR_MS), 5_000)
    #: assignments of such a group are at least so far apart
    group_consumer_assignment_interval_ms: int = setting(integer(0, _HOUR_MS), 1_000)
    #: whether a group with members may go over to the other protocol: to KIP-848, back, both, or not at all
    group_consumer_migration_policy: str = setting(
        text("bidirectional|upgrade|downgrade|disabled", "bidirectional, upgrade, downgrade or disabled"),
        "bidirectional",
    )
    #: of one committed offset
    offset_metadata_max_bytes: int = setting(integer(0, 64 * 1024), 4_096)
    #: offsets of a group that has been empty for so long are removed
    offsets_retention_minutes: int = setting(integer(1, 2**31 - 1), 10_080)


@dataclass(frozen=True, slots=True)
class TransactionsSection:
    """Transactions, under Kafka's names."""

    #: a producer that asks for a longer time-out is refused
    transaction_max_timeout_ms: int = setting(integer(1, 2**31 - 1), 900_000)
    #: an id that nobody has used for so long is removed, and its producer fenced
    transactional_id_expiration_ms: int = setting(integer(1, 2**31 - 1), 604_800_000)
    #: a leader asks the coordinator before it appends the first record of a transaction
    transaction_partition_verification_enable: bool = setting(BOOLEAN, True)


@dataclass(frozen=True, slots=True)
class BrokerLimitsSection:
    """What clients may ask for."""

    #: of one listener; above it the connection goes that is idle the longest
    connections_max: int = setting(integer(1, 1_000_000), 10_000)
    #: a connection that waits for nothing and was silent for so long is closed, other brokers' apart
    connections_max_idle_ms: int = setting(integer(100, 2**31 - 1), 600_000)
    #: largest Produce request, in bytes; others have bounds of their own (controller/wire/apis.py)
    frame_bytes_max: int = setting(integer(1024, 1024 * _MIB), 100 * _MIB)
    #: requests of one connection that wait for their responses; reading pauses there
    requests_in_flight_max: int = setting(integer(1, 100_000), 100)
    #: what the connections of one listener hold together: of requests that are not answered yet
    received_bytes_total_max: int = setting(integer(1024, 1024 * 1024 * _MIB), 512 * _MIB)
    #: and of answers that nobody reads; above these the connection goes that holds the most
    unread_bytes_total_max: int = setting(integer(1024, 1024 * 1024 * _MIB), 256 * _MIB)
    #: incremental fetch sessions of followers and clients; 0: none are given
    max_incremental_fetch_session_cache_slots: int = setting(integer(0, 1_000_000), 1_000)
    #: log files that are open at once
    open_files_max: int = setting(integer(16, 1_000_000), 1024)
    #: the smallest segment.bytes that a topic may have: a segment costs files, fsyncs and a roll
    segment_bytes_min: int = setting(integer(4096, 1024 * _MIB), SEGMENT_BYTES_MIN)
    #: of all topics together; above it clients create none. What the controller's broker says counts
    partitions_max: int = setting(integer(1, 10_000_000), 200_000)


@dataclass(frozen=True, slots=True)
class CleanerSection:
    """Compaction; the names are Kafka's."""

    #: between two looks at which logs are to be compacted
    log_cleaner_backoff_ms: int = setting(integer(1, _HOUR_MS), 15_000)
    #: what the keys of one round take in memory; keys that do not fit are for the next round
    log_cleaner_dedupe_buffer_size: int = setting(integer(_MIB, 1024 * 1024 * _MIB), 128 * _MIB)
    #: what is read and written for compaction in a second
    log_cleaner_io_max_bytes_per_second: int = setting(integer(1024, 2**63 - 1), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class BrokerSecuritySection:
    """How brokers prove themselves to each other."""

    #: the same bytes at every broker; surrounding white space does not count
    peer_secret_file: Path = setting(PATH)
    #: how brokers reach each other: "secret" proves the peer secret, "ssl" does so within TLS, [tls.broker]
    inter_broker_protocol: str = setting(text("secret|ssl", "secret or ssl"), "secret")
    #: principals that may do everything; by TLS the broker listener takes their certificates alone
    super_users: tuple[str, ...] = setting(texts(r"User:.+", "principal, as User:NAME,"), ())
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


def _topic_setting(name: str) -> Any:
    """Declare the default of a topic setting, read as the setting itself is."""
    row = TOPIC_SETTINGS[name]

    def read(value: Any, _folder: Path) -> Value:
        try:
            return row.read(text_of(value))
        except ValueError as error:
            raise ValueError(f"is not {row.wanted}") from error

    return setting(ValueKind(row.wanted, read), getattr(TopicSettings(), row.field))


@dataclass(frozen=True, slots=True)
class TopicsSection:
    """The default of every topic setting that is not about single replicas."""

    retention_ms: int = _topic_setting("retention.ms")
    retention_bytes: int = _topic_setting("retention.bytes")
    segment_bytes: int = _topic_setting("segment.bytes")
    segment_ms: int = _topic_setting("segment.ms")
    cleanup_policy: str = _topic_setting("cleanup.policy")
    min_cleanable_dirty_ratio: float = _topic_setting("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _topic_setting("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _topic_setting("max.compaction.lag.ms")
    delete_retention_ms: int = _topic_setting("delete.retention.ms")
    max_message_bytes: int = _topic_setting("max.message.bytes")
    min_insync_replicas: int = _topic_setting("min.insync.replicas")
    unclean_leader_election_enable: bool = _topic_setting("unclean.leader.election.enable")
    message_timestamp_type: str = _topic_setting("message.timestamp.type")
    message_timestamp_before_max_ms: int = _topic_setting("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _topic_setting("message.timestamp.after.max.ms")


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
    tls = read_tls(BrokerTlsSection, BROKER_TLS, raw, folder, problems)
    if audit:
        check_audit(audit, problems)
    if listen:
        check_listen(listen, problems)
    if listen and sasl:
        check_sasl(sasl, dict(listen.listeners), problems)
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
    if problems or not (broker and listen and advertised and quorum):
        raise ConfigError.of(problems)
    if not (topics and groups and transactions and limits and cleaner and security and sasl and audit):
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
        MappingProxyType(tls),
    )


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
