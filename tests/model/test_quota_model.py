"""Quotas against a naive count: after each operation all nodes of the tree are counted again.

The model of the tree (test_tree_model.py) goes on to judge everything else: results, events, Stats, snapshots
that are walked meanwhile, and a second machine that is given the same entries.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from quorum.core.quotas import QuotaRule
from tests.model.test_tree_model import (
    OPERATIONS,
    VERSIONS,
    Model,
    ModelError,
    TreeMachine,
)

QUOTA = "/zookeeper/quota"
#: {text of a limits node: (nodes, bytes) that its hard limits allow}
TEXTS = {
    b"count=1,bytes=1": (-1, -1),
    b"count=-1,bytes=-1=;countHardLimit=4": (4, -1),
    b"count=-1,bytes=-1=;byteHardLimit=14;countHardLimit=5": (5, 14),
    b"byteHardLimit=0": (-1, 0),
    b"countHardLimit=many;;bytes": (-1, -1),
}
SUBJECTS = st.sampled_from(["/a", "/a", "/a/a", "/a/a", "/a/b", "/b", "/zookeeper", "/nowhere", ""])
NAMES = st.sampled_from(["zookeeper_limits", "zookeeper_limits", "zookeeper_limits", "zookeeper_stats"])
QUOTA_PATHS = st.tuples(SUBJECTS, NAMES).map(lambda pair: f"{QUOTA}{pair[0]}/{pair[1]}")
QUOTA_DATA = st.sampled_from([*sorted(TEXTS), b"", None])
#: the first quota that holds something back
TIGHT = b"count=-1,bytes=-1=;byteHardLimit=14;countHardLimit=5"
QUOTA_OPERATIONS = st.one_of(
    st.tuples(st.just(1), QUOTA_PATHS, QUOTA_DATA, st.none(), st.just(0)).map(list),
    st.tuples(st.just(15), QUOTA_PATHS, QUOTA_DATA, st.none(), st.just(0)).map(list),
    st.tuples(st.just(5), QUOTA_PATHS, QUOTA_DATA, VERSIONS).map(list),
    st.tuples(st.just(2), QUOTA_PATHS, st.just(-1)).map(list),
)


class QuotaModel(Model):
    """The tree, and the stats of its quotas counted anew after each operation."""

    enforces = False

    def quotas(self) -> dict[str, tuple[int, int]]:
        """Return {path with a quota: (nodes, bytes) that it allows at most}."""
        found = {}
        for path, node in self.nodes.items():
            subject = path.removeprefix(QUOTA).removesuffix("/zookeeper_limits")
            if path == f"{QUOTA}{subject}/zookeeper_limits" and subject not in ("", "/zookeeper"):
                found[subject] = TEXTS.get(node["data"], (-1, -1))
        return found

    @staticmethod
    def counts_in(path: str, quotas: dict[str, tuple[int, int]]) -> str | None:
        above = [each for each in quotas if path == each or path.startswith(each + "/")]
        return max(above, key=len, default=None)

    def used(self, subject: str, quotas: dict[str, tuple[int, int]]) -> tuple[int, int]:
        mine = [node for path, node in self.nodes.items() if self.counts_in(path, quotas) == subject]
        return len(mine), sum(len(node["data"] or b"") for node in mine)

    def show(self) -> None:
        quotas = self.quotas()
        for subject in quotas:
            stats = self.nodes.get(f"{QUOTA}{subject}/zookeeper_stats")
            if stats is not None:
                stats["data"] = b"count=%d,bytes=%d" % self.used(subject, quotas)

    def drop(self, path: str) -> None:
        super().drop(path)
        self.show()

    def refuse(self, path: str, nodes: int, size: int) -> None:
        """Raise what a hard limit says to so many nodes and bytes more."""
        quotas = self.quotas()
        subject = self.counts_in(path, quotas)
        if not self.enforces or subject is None:
            return
        allowed, used = quotas[subject], self.used(subject, quotas)
        for more, limit, there in zip((nodes, size), allowed, used, strict=True):
            if more and limit >= 0 and there + more > limit:
                raise ModelError(-125)

    def write(self, command: Any, session_id: int, identities: Any) -> Any:
        before = copy.deepcopy((self.nodes, self.sessions))
        told = list(self.events)
        size = len(command[2] or b"") if command[0] in (1, 5, 15, 19, 21) else 0
        if command[0] == 5 and command[1] in self.nodes:
            size -= len(self.nodes[command[1]]["data"] or b"")
        try:
            value = super().write(command, session_id, identities)
        except ModelError as error:
            if command[0] == 5 and error.args[0] == -103:
                # The version is looked at last.
                self.refuse(command[1], 0, size)
            raise
        after = self.nodes, self.sessions, self.events
        self.nodes, self.sessions = before
        self.events = told
        if command[0] == 5:
            self.refuse(command[1], 0, size)
        elif command[0] in (1, 15, 19, 21):
            self.refuse(value if isinstance(value, str) else value[0], 1, size)
        self.nodes, self.sessions, self.events = after
        self.show()
        return value


class QuotaMachine(TreeMachine):
    """Random writes with quotas that come, change and go; entries enforce hard limits, or do not."""

    model: QuotaModel

    def __init__(self) -> None:
        super().__init__()
        self.model = QuotaModel()

    @initialize()
    def first_nodes(self) -> None:
        super().first_nodes()
        paths = [QUOTA + path for path in ("/a", "/a/a", "/a/b", "/b", "/zookeeper", "/nowhere")]
        self.write(0, None, [[1, path, b"", None, 0] for path in sorted(paths)])
        self.write(0, None, [[1, f"{path}/zookeeper_stats", b"", None, 0] for path in paths])
        self.write(0, None, [[1, f"{QUOTA}{path}/zookeeper_limits", TIGHT, None, 0] for path in ("/a", "/b")])

    @rule(
        which=st.integers(0, 2),
        enforces=st.sampled_from([True, True, False]),
        commands=st.lists(QUOTA_OPERATIONS | OPERATIONS | OPERATIONS, min_size=1, max_size=5),
        as_multi=st.booleans(),
    )
    def write_quotas(self, which: int, commands: list[Any], *, enforces: bool, as_multi: bool) -> None:
        self.model.enforces = enforces
        self.driver.quota_rule = QuotaRule.ENFORCED if enforces else QuotaRule.KEPT
        self.write(which, None, [[14, commands]] if as_multi else commands)


TestQuotas = QuotaMachine.TestCase
TestQuotas.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
