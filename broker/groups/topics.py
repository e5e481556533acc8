"""The topics that groups subscribe to, as the quorum has them: names, and names that match a pattern.

Patterns are RE2's, which match in linear time whatever a client sends; where google-re2 is not installed,
only subscriptions by pattern are refused. Reads; decides nothing.
Source: KIP-848 (SubscribedTopicRegex), KIP-1043; control-plane design, "Coordinator".
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from broker.core.cluster_view import ClusterView
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import Catalog
from broker.groups.errors import GroupRefusedError
from controller.messages.codes import ErrorCode
from quorum.client import Client, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.records import TopicRecord

#: Topics whose values are held at a time, before they are records.
READ_CHUNK: Final = 1_000
#: Names and patterns that are remembered, before those are dropped to which no group subscribes any more.
NAMES_MAX: Final = 100_000
#: Topics are looked up at most so often.
READ_INTERVAL_MS: Final = 500
READ_AGAIN_MS: Final = 2_000
PATTERN_LENGTH_MAX: Final = 1_024
#: Bytes of memory that one pattern may take.
PATTERN_MEMORY_MAX: Final = 1024 * 1024


@functools.lru_cache(maxsize=1_000)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a whole name matches a pattern.

    Raises:
        GroupRefusedError: it is no regular expression of RE2's, or patterns are not served here.
    """
    try:
        re2: Any = importlib.import_module("re2")
    except ImportError as error:
        problem = "patterns of topics are not served: google-re2 is not installed at the coordinator"
        remedy = "name the topics, or install quorate[patterns]"
        raise GroupRefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, problem, remedy) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_MAX
    try:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise re2.error(f"it has more than {PATTERN_LENGTH_MAX} characters")
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        problem = f"pattern {pattern[:64]!r} is no regular expression of RE2's: {error}"
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
        #: What was looked up, whether it exists or not.
        self._names: set[str] = set()
        self._patterns: set[str] = set()
        self._seen_changes = -1
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
            self._again_ms = None
            return True
        return False

    def forget(self) -> None:
        """Look everything up once more: the last time it failed."""
        self._names.clear()
        self._patterns.clear()
        self._seen_changes = -1

    def learn(self, names: Iterable[str], pattern: str | None) -> bool:
        """Note what a member subscribes to; says whether it has to be looked up.

        Raises:
            GroupRefusedError: the pattern is malformed.
        """
        before = len(self._names) + len(self._patterns)
        if pattern:
            matcher(pattern)
            self._patterns.add(pattern)
        self._names.update(names)
        return len(self._names) + len(self._patterns) > before

    async def read(self, groups: Iterable[ConsumerGroup]) -> None:
        """Look up the topics of all groups, and what has been learnt.

        Raises:
            ClientError: the quorum cannot be asked.
        """
        async with self._lock:
            self._seen_changes = self._view.changes
            if len(self._names) + len(self._patterns) > NAMES_MAX:
                self._names.clear()
                self._patterns.clear()
            for group in groups:
                self._names |= group.topic_names
                self._patterns |= group.patterns
            names, patterns = set(self._names), set(self._patterns)
            self.existing = frozenset(await self._client.get_children(paths.BROKER_TOPICS))
            self.catalog = await read_catalog(self._client, self.existing, names, patterns)


async def read_catalog(
    client: Client, existing: Iterable[str], names: Iterable[str], patterns: Iterable[str]
) -> Catalog:
    """Return those of the named topics that exist, and those of the existing that match.

    Raises:
        ClientError: the quorum cannot be asked.
        GroupRefusedError: a pattern is malformed.
    """
    tests = {pattern: matcher(pattern) for pattern in sorted(patterns)}
    ordered = sorted(existing) if tests else []
    matched = {
        pattern: tuple(name for name in ordered if matches(name)) for pattern, matches in tests.items()
    }
    wanted = sorted({*names, *(name for found in matched.values() for name in found)})
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
