"""The configuration of one node: sections, keys, defaults, and the relations that must hold between them.

Layers, the later ones win: the defaults below, node.toml, the environment (QUORATE_<SECTION>_<KEY>), flags.
The result is frozen; a node never changes it. One error names every problem of a configuration that
names section.key, the value and the remedy. What a key does is decided where it is used; nothing here opens a
socket or a data directory.
Source: ticks, session timeouts and superDigest as in ZooKeeper's administrator's guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from quorum.config.address import Address, parse_member_address
from quorum.config.admin_port import check_admin_port
from quorum.config.audit import AuditSection, check_audit
from quorum.config.log import LogSection
from quorum.config.sasl_users import SCHEMES, SUBJECT, check_proofs
from quorum.config.secrets import PEER_SECRETS_MAX, SECRET_BYTES_MIN, read_secret
from quorum.config.settings import (
    ADDRESS,
    BOOLEAN,
    OPTIONAL_ADDRESS,
    OPTIONAL_PATH,
    PATH,
    Origin,
    Raw,
    collect_file,
    collect_sections,
    field_name,
    integer,
    integer_range,
    masked_section,
    overlay_environment,
    overlay_flags,
    read_section,
    refuse_unknown,
    setting,
    text,
    texts,
    words,
)
from quorum.config.tls import NODE_TLS, TlsSection, check_tls, read_tls, tls_sections
from quorum.errors import ConfigError, ConfigProblem, shown

FOUR_LETTER_WORDS = (
    *("ruok", "srvr", "stat", "mntr", "conf", "cons", "isro", "dirs"),
    *("wchs", "wchc", "wchp", "dump", "envi", "crst", "srst"),
)

#: of a Host header, without a port
HOST_NAME = r"[A-Za-z0-9_-](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_-])?"
NODE_ID_MAX = 255
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000
#: what one client may leave unread
UNREAD_BYTES_MAX = 64 * _MIB


@dataclass(frozen=True, slots=True)
class NodeSection:
    """The id and the place of this node."""

    id: int = setting(integer(1, NODE_ID_MAX))
    #: nodes of another cluster name are refused
    cluster: str = setting(text(r"[A-Za-z0-9._-]{1,64}", "a name of 1 to 64 letters, digits, dots, dashes"))
    data_dir: Path = setting(PATH)


@dataclass(frozen=True, slots=True)
class ListenSection:
    """The addresses that this node listens on."""

    #: plain; None: only by TLS
    client: Address | None = setting(OPTIONAL_ADDRESS, Address("127.0.0.1", 2181))
    #: by TLS, [tls.client]; ZooKeeper's secureClientPort
    secure_client: Address | None = setting(OPTIONAL_ADDRESS, None)
    peer: Address = setting(ADDRESS, Address("127.0.0.1", 2281))
    admin: Address = setting(ADDRESS, Address("127.0.0.1", 8181))


@dataclass(frozen=True, slots=True)
class SecuritySection:
    """What callers of this node must prove, and how much they may see."""

    #: one secret a line, the same on every node: the first is proved, each is accepted
    peer_secret_file: Path = setting(PATH)
    #: "name:base64 of SHA-1 of name:password", as ZooKeeper's superDigest; empty: no super user
    super_digest: str = setting(
        text(r"|[^:\s]+:[A-Za-z0-9+/]{27}=", 'name:digest as ZooKeeper\'s superDigest, or ""'),
        "",
        secret=True,
    )
    #: who proves a password by SASL DIGEST-MD5; None: nobody can
    sasl_users_file: Path | None = setting(OPTIONAL_PATH, None)
    #: a name of SASL, ZooKeeper's superUser
    super_user: str = setting(text(r"[!-9;-~]{0,255}", 'a name of SASL, or ""'), "")
    #: the subject of a certificate, as RFC 2253 writes it
    x509_super_user: str = setting(text(SUBJECT, 'a subject as RFC 2253 writes it, "CN=root,O=x", or ""'), "")
    #: who has not proven a name by SASL is answered with SESSIONCLOSEDREQUIRESASLAUTH and closed
    session_require_client_sasl_auth: bool = setting(BOOLEAN, False)
    #: the same of who has proven nothing by one of these; empty: nobody must
    enforce_auth_schemes: tuple[str, ...] = setting(words(SCHEMES, star=False), ())
    four_letter_words: tuple[str, ...] = setting(
        words(FOUR_LETTER_WORDS), ("srvr", "ruok", "mntr", "isro", "stat")
    )
    #: names by which the admin port may be asked; literal addresses always may (DNS rebinding)
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
    #: dial peers by TLS, [tls.peer]; peers that dial without are refused, unless port_unification is set
    ssl_quorum: bool = setting(BOOLEAN, False)
    #: the peer port takes TLS and plain
    port_unification: bool = setting(BOOLEAN, False)


@dataclass(frozen=True, slots=True)
class RaftSection:
    """Consensus: times and sizes."""

    #: an election timeout is drawn from this range, both ends inclusive
    election_timeout_ms: tuple[int, int] = setting(integer_range(10, 60_000), (300, 600))
    heartbeat_interval_ms: int = setting(integer(1, 20_000), 50)
    #: after this long the outcome of a forwarded batch counts as unknown
    forward_deadline_ms: int = setting(integer(100, 600_000), 5000)
    segment_bytes_max: int = setting(integer(4096, 2048 * _MIB), 64 * _MIB)
    log_cache_bytes_max: int = setting(integer(4096, 4096 * _MIB), 64 * _MIB)
    snapshot_overlay_bytes_max: int = setting(integer(4096, 4096 * _MIB), 64 * _MIB)
    #: of log that no snapshot covers: above it this node's writers wait for one
    journal_bytes_max: int = setting(integer(4096, 1 << 40), 1024 * _MIB)
    batch_bytes_max: int = setting(integer(4096, 256 * _MIB), 8 * _MIB)


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """What clients may ask for."""

    #: of one request, so of a node's data, too: ZooKeeper's jute.maxbuffer; its clients read no more
    frame_bytes_max: int = setting(integer(1024, 128 * _MIB), 0xFFFFF)
    tick_ms: int = setting(integer(10, 60_000), 2000)
    #: 2 ticks unless given
    session_timeout_min_ms: int = setting(integer(20, _HOUR_MS), 4000)
    #: 20 ticks unless given
    session_timeout_max_ms: int = setting(integer(20, 24 * _HOUR_MS), 40_000)
    handshake_timeout_ms: int = setting(integer(10, 600_000), 5000)
    #: of all clients; 0: as many as the limit of open files allows, less what the node itself needs
    connections_max: int = setting(integer(0, 1_000_000), 0)
    #: 0: no limit
    connections_per_address_max: int = setting(integer(0, 1_000_000), 0)
    #: per connection; reading pauses there; an entry "auth" of an access list counts as one
    outstanding_requests_max: int = setting(integer(1, 1_000_000), 1000)
    watches_per_connection_max: int = setting(integer(1, 10_000_000), 100_000)
    #: of requests that are not whole yet, of all clients together; the connection with the most goes
    received_bytes_total_max: int = setting(integer(1024, 64 * 1024 * _MIB), 96 * _MIB)
    #: of replies that are not read; the same
    unread_bytes_total_max: int = setting(integer(UNREAD_BYTES_MAX, 64 * 1024 * _MIB), 96 * _MIB)
    #: of watches; the same
    watch_bytes_total_max: int = setting(integer(_MIB, 64 * 1024 * _MIB), 192 * _MIB)
    container_check_interval_ms: int = setting(integer(100, _HOUR_MS), 60_000)
    read_only_mode: bool = setting(BOOLEAN, False)
    #: hard limits of quotas refuse writes of this node's clients: ZooKeeper's enforceQuota
    enforce_quota: bool = setting(BOOLEAN, False)


@dataclass(frozen=True, slots=True)
class ChangelogSection:
    """How much history of committed transactions a node keeps."""

    #: of all files but the newest, which holds a sixteenth of it, at most 16 MiB
    retention_bytes_max: int = setting(integer(65_536, 1024 * 1024 * _MIB), 256 * _MIB)
    #: a file goes once a transaction that is this much newer than all of it is written
    retention_age_ms: int = setting(integer(1000, 10_000 * 24 * _HOUR_MS), 7 * 24 * _HOUR_MS)


#: None: the keys are node ids, the values addresses
SECTIONS: dict[str, type | None] = {
    "node": NodeSection,
    "listen": ListenSection,
    "members": None,
    "security": SecuritySection,
    **tls_sections(TlsSection, NODE_TLS),
    "raft": RaftSection,
    "limits": LimitsSection,
    "changelog": ChangelogSection,
    "audit": AuditSection,
    "log": LogSection,
}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The whole configuration of one node, checked.

    Attributes:
        members: {node id: address to dial it at}, in rising order of ids; founds the cluster, later only
            overrides.
        tls: {NAME: its settings}; "tls": what the others have unless they say another thing.
    """

    node: NodeSection
    listen: ListenSection
    members: Mapping[int, Address]
    security: SecuritySection
    tls: Mapping[str, TlsSection]
    raft: RaftSection
    limits: LimitsSection
    changelog: ChangelogSection
    audit: AuditSection
    log: LogSection

    def masked(self) -> str:
        """Return the configuration as one line of JSON for the log, secrets as "***"."""
        sections: dict[str, object] = {
            name: masked_section(getattr(self, name))
            for name, kind in SECTIONS.items()
            if kind not in (None, TlsSection)
        }
        sections["tls"] = {name: masked_section(self.tls[name]) for name in self.tls_used()}
        sections["members"] = {str(node_id): str(address) for node_id, address in self.members.items()}
        return json.dumps(sections)

    def tls_used(self) -> dict[str, str]:
        """Return {NAME of [tls.NAME] that is in use: the setting that makes it so}."""
        return _tls_used(self.listen, self.security)


def _tls_used(listen: ListenSection, security: SecuritySection) -> dict[str, str]:
    used = {
        "client": (listen.secure_client is not None, "listen.secure_client"),
        "peer": (security.ssl_quorum, "security.ssl_quorum"),
        "admin": (security.admin_ssl, "security.admin_ssl"),
    }
    if security.port_unification and not security.ssl_quorum:
        used["peer"] = (True, "security.port_unification")
    return {name: setting_name for name, (is_used, setting_name) in used.items() if is_used}


def load_node_config(
    path: Path | str, environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None
) -> NodeConfig:
    """Read node.toml, the environment and flags.

    Args:
        path: the file.
        environ: the process's environment; None: without one.
        overrides: flags, "section.key" → value (a text is read as in the environment).

    Returns:
        A configuration in which every relation holds.

    Raises:
        ConfigError: with every problem found. Definite: nothing was started or written.
    """
    file = Path(path).absolute()
    return _build(collect_file(file), file.parent, environ or {}, overrides or {})


def node_config(sections: Mapping[str, Mapping[str, object]], folder: Path) -> NodeConfig:
    """Check a configuration that did not come from a file.

    Args:
        sections: section → key → value, as node.toml would have them.
        folder: where relative paths count from.

    Raises:
        ConfigError: as load_node_config.
    """
    return _build(collect_sections(sections), folder, {}, {})


def read_peer_secrets(path: Path) -> list[str]:
    """Read the secrets that nodes and brokers prove to each other, one a line.

    Args:
        path: security.peer_secret_file.

    Returns:
        The secrets, without white space around them: the first is proved, each is accepted.

    Raises:
        ConfigError: the file is missing, unreadable, too short, too long, no UTF-8, or readable for every
            user of the machine; or it has too many secrets, one that is too short, or one twice.
    """
    field, remedy = "security.peer_secret_file", "write each on a line, as openssl rand -hex 32 makes one"
    make = f"create it on one host and copy it to the others: openssl rand -hex 32 > {path}; chmod 600 {path}"
    try:
        lines = read_secret(path, field, make).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(field, str(path), "is no UTF-8", remedy) from error
    secrets = [line.strip() for line in lines if line.strip()]
    shortest = min(len(each.encode()) for each in secrets)
    if shortest < SECRET_BYTES_MIN:
        problem = f"has a secret of {shortest} bytes; each has at least {SECRET_BYTES_MIN}"
        raise ConfigError(field, str(path), problem, remedy)
    if len(secrets) > PEER_SECRETS_MAX:
        problem = f"has {len(secrets)} secrets; there are at most {PEER_SECRETS_MAX}"
        raise ConfigError(field, str(path), problem, "cut those that nobody proves any more")
    if len(set(secrets)) < len(secrets):
        raise ConfigError(field, str(path), "has one secret twice", "cut one of the two lines")
    return secrets


def _build(raw: Raw, folder: Path, environ: Mapping[str, str], overrides: Mapping[str, object]) -> NodeConfig:
    problems: list[ConfigProblem] = []
    overlay_environment(raw, environ, SECTIONS, problems)
    overlay_flags(raw, overrides, SECTIONS)
    refuse_unknown(raw, SECTIONS, problems)
    _derive_session_timeouts(raw)
    node = read_section(NodeSection, "node", raw, folder, problems)
    listen = read_section(ListenSection, "listen", raw, folder, problems)
    members = _read_members(raw.get("members", {}), problems)
    security = read_section(SecuritySection, "security", raw, folder, problems)
    tls = read_tls(TlsSection, NODE_TLS, raw, folder, problems)
    raft = read_section(RaftSection, "raft", raw, folder, problems)
    limits = read_section(LimitsSection, "limits", raw, folder, problems)
    changelog = read_section(ChangelogSection, "changelog", raw, folder, problems)
    audit = read_section(AuditSection, "audit", raw, folder, problems)
    log = read_section(LogSection, "log", raw, folder, problems)
    if audit:
        check_audit(audit, problems)
    if listen:
        _check_listen(listen, problems)
    if node and node.id not in members and members:
        problems.append(
            ConfigProblem(
                "node.id",
                str(node.id),
                f"is not among the members {', '.join(map(str, members))}",
                f'add {node.id} = "host:port" to [members], or correct node.id',
            )
        )
    if raft:
        _check_raft(raft, problems)
    if limits:
        _check_sessions(limits, raft, problems)
    if limits and raft:
        _check_sizes(limits, raft, problems)
    if security:
        try:
            read_peer_secrets(security.peer_secret_file)
        except ConfigError as error:
            problems.extend(error.problems)
        check_admin_port(listen.admin if listen else None, security, tls.get("admin"), problems)
        if listen:
            check_tls(tls, NODE_TLS, _tls_used(listen, security), problems)
            # Where [tls] is wrong itself, that is said, and nothing follows from it.
            asks = "client" not in tls or tls["client"].client_auth != "none"
            check_proofs(security, problems, sees_certificates=listen.secure_client is not None and asks)
    if problems or not (node and listen and security and raft and limits and changelog and audit and log):
        raise ConfigError.of(problems)
    sorted_members = MappingProxyType(dict(sorted(members.items())))
    found_tls = MappingProxyType(tls)
    return NodeConfig(node, listen, sorted_members, security, found_tls, raft, limits, changelog, audit, log)


def _derive_session_timeouts(raw: Raw) -> None:
    """Let the session timeouts follow the tick where only the tick is given, as ZooKeeper does."""
    limits = raw.get("limits", {})
    tick = limits.get("tick_ms")
    if tick is None or type(tick.value) is not int:
        return
    for key, ticks in (("session_timeout_min_ms", 2), ("session_timeout_max_ms", 20)):
        if key not in limits:
            limits[key] = Origin(ticks * tick.value, f"{ticks} × limits.tick_ms")


def _read_members(given: Mapping[str, Origin], problems: list[ConfigProblem]) -> dict[int, Address]:
    members: dict[int, Address] = {}
    example = 'give lines of the form 1 = "127.0.0.1:2281" with ids from 1 to 255'
    if not given:
        problems.append(ConfigProblem("[members]", "(empty)", "names no node", example))
    for key, origin in given.items():
        name = field_name("members", key, origin.source)
        if not key.isascii() or not key.isdigit() or not 1 <= int(key) <= NODE_ID_MAX or str(int(key)) != key:
            # Its value may be a secret below the wrong header.
            problems.append(ConfigProblem(name, "***", "is no node id", example))
            continue
        try:
            address = parse_member_address(origin.value if isinstance(origin.value, str) else "")
        except ValueError as error:
            problems.append(ConfigProblem(name, shown(origin.value), str(error), example))
            continue
        twin = next((other for other, known in members.items() if known == address), None)
        if twin is not None:
            problems.append(
                ConfigProblem(
                    name, shown(origin.value), f"is also the address of {twin}", "give each its own address"
                )
            )
        members[int(key)] = address
    return members


def _check_listen(listen: ListenSection, problems: list[ConfigProblem]) -> None:
    ports = {
        "client": listen.client,
        "secure_client": listen.secure_client,
        "peer": listen.peer,
        "admin": listen.admin,
    }
    if listen.client is None and listen.secure_client is None:
        problem = "leaves clients no port, for listen.secure_client is not set either"
        problems.append(ConfigProblem("listen.client", '""', problem, "give one of them, or both"))
    seen: dict[int, str] = {}
    for key, address in ports.items():
        if address is None:
            continue
        if address.port in seen:
            problem = f"has the port of listen.{seen[address.port]}"
            problems.append(ConfigProblem(f"listen.{key}", str(address), problem, "give each its own port"))
        seen.setdefault(address.port, key)


def _check_raft(raft: RaftSection, problems: list[ConfigProblem]) -> None:
    least_ms, _most_ms = raft.election_timeout_ms
    if raft.heartbeat_interval_ms * 3 > least_ms:
        problems.append(
            ConfigProblem(
                "raft.heartbeat_interval_ms",
                str(raft.heartbeat_interval_ms),
                f"is more than a third of the shortest election timeout ({least_ms} ms)",
                f"lower it to {least_ms // 3} or less, or raise raft.election_timeout_ms",
            )
        )


def _check_sessions(limits: LimitsSection, raft: RaftSection | None, problems: list[ConfigProblem]) -> None:
    least_ms, most_ms = limits.session_timeout_min_ms, limits.session_timeout_max_ms
    if least_ms > most_ms:
        problems.append(
            ConfigProblem(
                "limits.session_timeout_min_ms",
                str(least_ms),
                f"is above limits.session_timeout_max_ms ({most_ms})",
                "give both, the smaller one as min (they default to 2 and 20 ticks)",
            )
        )
    if most_ms < limits.tick_ms:
        problems.append(
            ConfigProblem(
                "limits.session_timeout_max_ms",
                str(most_ms),
                f"is shorter than one tick ({limits.tick_ms} ms)",
                "raise it, or lower limits.tick_ms",
            )
        )
    if raft and least_ms < 3 * raft.heartbeat_interval_ms:
        heartbeats = f"three heartbeats of {raft.heartbeat_interval_ms} ms"
        problems.append(
            ConfigProblem(
                "limits.session_timeout_min_ms",
                str(least_ms),
                f"is below {heartbeats}, with which followers report live sessions",
                f"raise it to {3 * raft.heartbeat_interval_ms} or more",
            )
        )


def _check_sizes(limits: LimitsSection, raft: RaftSection, problems: list[ConfigProblem]) -> None:
    """What must hold one request, one batch, one entry must be large enough for the next smaller thing."""
    batch = ("raft.batch_bytes_max", raft.batch_bytes_max)
    for (name, size), (inner, inner_size) in (
        (batch, ("limits.frame_bytes_max", limits.frame_bytes_max)),
        (("raft.segment_bytes_max", raft.segment_bytes_max), batch),
        (("raft.log_cache_bytes_max", raft.log_cache_bytes_max), batch),
        (
            ("limits.received_bytes_total_max", limits.received_bytes_total_max),
            ("limits.frame_bytes_max", limits.frame_bytes_max),
        ),
    ):
        if size < inner_size:
            problem = f"is below {inner} ({inner_size}): the largest one would not fit"
            problems.append(ConfigProblem(name, str(size), problem, f"raise it, or lower {inner}"))
