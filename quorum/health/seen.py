"""What was seen of a quorum, of its processes and of the files of one machine, as the checks take it.

Times are seconds since 1970. What could not be had is None, or the row is missing. Pure; no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class RoomSeen(NamedTuple):
    """The room on the disk of a process's data directory.

    Attributes:
        change_bytes: by which the free bytes rose within span_s; below 0: they fell.
    """

    free_bytes: float
    change_bytes: float
    span_s: float


class ProcessSeen(NamedTuple):
    """One node or broker, as its admin port shows it.

    Attributes:
        name: "node 2" or "broker 3".
        url: of the admin port.
        version: of Quorate.
        clock_ahead_s: its clock minus that of this machine, at best to half a second.
        open_files, open_files_max: of the process.
        expiries: {NAME of its [tls.NAME]: when the first certificate expires}.
        longest_turn_s: the longest that one piece of work held its event loop of late.
        feature_level: the highest that the build of a node supports.
        room: on its disk.
    """

    name: str
    url: str
    version: str | None = None
    clock_ahead_s: float | None = None
    open_files: int | None = None
    open_files_max: int | None = None
    expiries: Mapping[str, float] = {}
    longest_turn_s: float | None = None
    feature_level: int | None = None
    room: RoomSeen | None = None


class MemberSeen(NamedTuple):
    """A member of the quorum, as a node sees it.

    Attributes:
        role: leader, follower, learner, candidate, unreachable or refused.
        match_index: the last log index that it holds; the leader alone knows it.
        refusal: why a process that speaks for this member does not count, else None.
    """

    node_id: int
    role: str
    voter: bool
    match_index: int | None
    refusal: str | None = None


class NodeSeen(NamedTuple):
    """A node that answered.

    Attributes:
        role, leader_id, members: as the node sees them.
        problem: why it serves no clients, else None.
        journal: rising (upper bound in s, writes of the journal up to it), the last bound infinite.
        changelog_pending_bytes: of history that waits for the disk.
        snapshots_failed: since its start.
        import_source: what is being imported; None: nothing.
    """

    process: ProcessSeen
    node_id: int
    cluster_id: str | None
    role: str
    term: int | None = None
    leader_id: int | None = None
    commit_index: int | None = None
    zxid: int | None = None
    digest: str | None = None
    problem: str | None = None
    members: tuple[MemberSeen, ...] = ()
    journal: tuple[tuple[float, float], ...] = ()
    changelog_pending_bytes: float | None = None
    snapshots_failed: float | None = None
    import_source: str | None = None


class TermRise(NamedTuple):
    """How the term rose.

    Attributes:
        before: the term of a transaction that is span_s old.
        now: the highest term of a node that answered.
    """

    before: int
    now: int
    span_s: float


class QuorumSeen(NamedTuple):
    """All that was seen of a quorum.

    Attributes:
        silent: {admin URL that was asked: why there is no answer}.
        refused: {admin URL: why it does not show its state}, of those that answered.
        named: whether a person, or a file, named these URLs; else they are the defaults, and may be nobody's.
        terms: a str says why it is not known.
    """

    nodes: tuple[NodeSeen, ...] = ()
    silent: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}
    named: bool = True
    terms: TermRise | str = "the change log was not looked at"


class ProcessesSeen(NamedTuple):
    """Every process that answered, and when."""

    processes: tuple[ProcessSeen, ...]
    now_s: float


class FileSeen(NamedTuple):
    """A file or folder that a configuration names.

    Attributes:
        config: the configuration's file.
        setting: section.key.
        kind: secret, users, key, certificate or data_dir.
        mode: permission bits; None: it is not there, or cannot be looked at.
        expires_s: when a certificate's first one expires; None: it holds none that can be read.
        free_bytes, size_bytes: of the file system of a data directory.
    """

    path: str
    config: str
    setting: str
    kind: str
    mode: int | None
    expires_s: float | None = None
    free_bytes: int | None = None
    size_bytes: int | None = None


class SettingProblem(NamedTuple):
    """What the next start would say of one setting, "section.key"."""

    setting: str
    value: str
    problem: str
    remedy: str


class ConfigSeen(NamedTuple):
    """A configuration file, and all that is wrong with it."""

    path: str
    problems: tuple[SettingProblem, ...] = ()


class MachineSeen(NamedTuple):
    """What was seen of the files of this machine.

    Attributes:
        configs: none where no file was named.
    """

    configs: tuple[ConfigSeen, ...]
    files: tuple[FileSeen, ...]
    now_s: float
