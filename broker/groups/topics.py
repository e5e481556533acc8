"""The topics that groups subscribe to, as the quorum has them: names, and names that match a pattern.

Patterns are RE2's, which match in linear time whatever a client sends. What all groups subscribe to is read
when topics change; what a member brings besides is looked up once, and only what exists. Reads; decides
nothing.
Source: KIP-848 (SubscribedTopicRegex), KIP-1043; ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable
from typing import Final

import re2

from broker.core.cluster_view import ClusterView
from broker.core.groups.model import Catalog
from broker.groups.errors import GroupRefusedError
from controller.wire.codes import ErrorCode
from quorum.client import Client, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.records import TopicRecord

#: Topics whose values are held at a time, before they are records.
READ_CHUNK: Final = 1_000
#: Patterns that members brought, before those are dropped to which no group subscribes any more.
PATTERNS_MAX: Final = 1_000
#: Topics are looked up at most so often.
READ_INTERVAL_MS: Final = 500
READ_AGAIN_MS: Final = 2_000
PATTERN_LENGTH_MAX: Final = 1_024
#: Bytes of memory that one pattern may take.
PATTERN_MEMORY_MAX: Final = 1024 * 1024


@functools.lru_cache(maxsize=1_000)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a whole name matches a pattern."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_MAX
    try:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise re2.error(b"more than %d characters" % PATTERN_LENGTH_MAX)
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
        problem = f"pattern {pattern[:64]!r} is no regular expression of RE2's: {reason}"
        raise GroupRefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem, "correct it") from error
    return lambda name: compiled.fullmatch(name) is not None


class GroupTopics:
    """What is known of the topics that the groups of one term subscribe to."""

    def __init__(self, client: Client, view: ClusterView) -> None:
        """Know nothing yet; the view tells when it is time to look again."""
        self._client = client
        self._view = view
        self.catalog = Catalog()
        #: Every topic that exists.
        self.existing: frozenset[str] = frozenset()
        #: Those of them that were looked up.
        self._names: set[str] = set()
        #: What members brought since all was read; who brought it may subscribe in a moment.
        self._new_names: set[str] = set()
        self._new_patterns: set[str] = set()
        #: Changes of the view when all was read, and when `existing` was.
        self._seen_changes = self._listed_changes = -1
        self._read_ms = 0
        #: When to look once more after a change; None: no need.
        self._again_ms: int | None = None
        self._lock = asyncio.Lock()

    def are_due(self, now_ms: int) -> bool:
        """Say whether topics may have changed, and were not looked up just now."""
        changed = self._view.changes != self._seen_changes
        if changed and now_ms - self._read_ms >= READ_INTERVAL_MS:
            self._read_ms = now_ms
            # Brokers learn of a deletion before the topic is gone from the quorum.
            self._again_ms = now_ms + READ_AGAIN_MS
            return True
        if self._again_ms is not None and now_ms >= self._again_ms:
            self._again_ms, self._read_ms = None, now_ms
            return True
        return False

    def forget(self) -> None:
        """Look everything up once more: the last time it failed."""
        self._names.clear()
        self._seen_changes = self._listed_changes = -1

    def lacks(self, names: Collection[str], pattern: str | None) -> bool:
        """Say whether some of what a member subscribes to has to be looked up."""
        if pattern and pattern not in self.catalog.matched:
            matcher(pattern)
            return True
        changed = self._listed_changes != self._view.changes
        return any(name not in self._names and (changed or name in self.existing) for name in names)

    async def look_up(self, names: Collection[str], pattern: str | None) -> None:
        """Look up what a member subscribes to and no other one does."""
        async with self._lock:
            if not self.lacks(names, pattern):
                return
            self._new_patterns |= {pattern} if pattern else set()
            await self._list()
            self._new_names |= self.existing.intersection(names)
            fresh = self._new_names - self._names
            patterns = self._new_patterns - self.catalog.matched.keys()
            found = await read_catalog(self._client, self.existing, fresh, patterns, known=self._names)
            self._names |= fresh.union(*found.matched.values())
            before = self.catalog
            self.catalog = Catalog({**before.topics, **found.topics}, {**before.matched, **found.matched})
            if len(self._new_patterns) > PATTERNS_MAX:
                # All is read again, and only what groups subscribe to is kept.
                self._seen_changes = -1

    async def _list(self) -> None:
        changes = self._view.changes
        self.existing = frozenset(await self._client.get_children(paths.BROKER_TOPICS))
        self._listed_changes = changes

    async def read(self, names: Collection[str], patterns: Collection[str]) -> None:
        """Look up what all groups subscribe to, and what members have brought since the last time."""
        async with self._lock:
            self._seen_changes = self._view.changes
            wanted, self._new_names = self._new_names.union(names), set()
            matched, self._new_patterns = self._new_patterns.union(patterns), set()
            await self._list()
            wanted &= self.existing
            self.catalog = await read_catalog(self._client, self.existing, wanted, matched)
            self._names = wanted.union(*self.catalog.matched.values())
            if self._again_ms is None and not self._names <= self._view.topics.keys():
                # Its deletion may take long, and nobody tells when it is over.
                self._again_ms = self._read_ms + READ_AGAIN_MS


async def read_catalog(
    client: Client,
    existing: Iterable[str],
    names: Iterable[str],
    patterns: Iterable[str],
    *,
    known: Collection[str] = (),
) -> Catalog:
    """Return those of the named topics that exist, and those of the existing that match.

    Args:
        client: asks the quorum.
        existing: every topic.
        names, patterns: what is looked up.
        known: topics whose records are not needed.
    """
    tests = {pattern: matcher(pattern) for pattern in sorted(patterns)}
    ordered = sorted(existing) if tests else []
    matched = {
        pattern: tuple(name for name in ordered if matches(name)) for pattern, matches in tests.items()
    }
    wanted = sorted({*names, *(name for found in matched.values() for name in found)}.difference(known))
    topics = {}
    for start in range(0, len(wanted), READ_CHUNK):
        chunk = [name for name in wanted[start : start + READ_CHUNK] if _is_topic(name)]
        outcomes = await client.read_all([paths.topic_path(name) for name in chunk])
        for name, outcome in zip(chunk, outcomes, strict=True):
            if isinstance(outcome, ServerError):
                continue
            try:
                record = TopicRecord.decode(name, outcome[0])
            except MetadataDecodeError:
                # The controller says so in its log, and leaves it alone too.
                continue
            if record.topic_id is not None:
                topics[name] = (record.topic_id, len(record.partitions))
    return Catalog(topics, matched)


def _is_topic(name: str) -> bool:
    try:
        paths.check_topic(name)
    except ValueError:
        return False
    return True
