"""A rough idea of what the tree holds, from which the generator chooses its paths.

It need not be right, and after the first surprise it is not: it only makes every outcome of every operation
likely. What the outcome is decides the oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

ROOT: Final = "~"
_NAMES: Final = ("a", "b", "c", "d")


@dataclass
class Sketch:
    """What a node probably is."""

    version: int = 0
    aversion: int = 0
    creates: int = 0
    ephemeral_of: int | None = None
    restricted: bool = False


@dataclass
class Idea:
    """What the tree probably holds: {path: node}; paths begin with "~"."""

    random: Random
    nodes: dict[str, Sketch] = field(default_factory=lambda: {ROOT: Sketch()})
    #: [(session, path, WatcherType)] of watches that are probably armed
    watches: list[tuple[int, str, int]] = field(default_factory=list)

    def there(self) -> str:
        """A node that is probably there."""
        return self.random.choice(list(self.nodes))

    def below(self) -> str:
        """A node other than the root that is probably there, or the root if it is alone."""
        nodes = [path for path in self.nodes if path != ROOT]
        return self.random.choice(nodes) if nodes else ROOT

    def missing(self) -> str:
        """A path at which there is probably nothing, below a node that is there."""
        for _ in range(8):
            path = f"{self.parent()}/{self.random.choice(_NAMES)}"
            if path not in self.nodes:
                return path
        return f"{self.there()}/z{self.random.randrange(9)}"

    def parent(self) -> str:
        """A node that probably takes children, not too deep."""
        fit = [path for path, node in self.nodes.items() if path.count("/") < 3 and node.ephemeral_of is None]
        return self.random.choice(fit)

    def orphan(self) -> str:
        """A path whose parent is probably missing."""
        return f"{self.missing()}/{self.random.choice(_NAMES)}"

    def leaf(self) -> str:
        """A node that probably has no children."""
        leaves = [path for path in self.nodes if path != ROOT and not self.children(path)]
        return self.random.choice(leaves) if leaves else self.missing()

    def full(self) -> str:
        """A node that probably has children."""
        return self.random.choice([path for path in self.nodes if self.children(path)] or [ROOT])

    def ephemeral(self) -> str:
        """A node that is probably ephemeral."""
        fit = [path for path, node in self.nodes.items() if node.ephemeral_of is not None]
        return self.random.choice(fit) if fit else self.missing()

    def restricted(self) -> str:
        """A node that probably not everybody may touch."""
        fit = [path for path, node in self.nodes.items() if node.restricted]
        return self.random.choice(fit) if fit else self.there()

    def children(self, path: str) -> bool:
        """Whether a node probably has children."""
        return any(other.startswith(path + "/") for other in self.nodes)

    def any(self) -> str:
        """Some path, there or not."""
        pick = self.random.random()
        if pick < 0.55:
            return self.there()
        return self.missing() if pick < 0.9 else self.orphan()

    def created(self, path: str, *, sequential: bool, ephemeral_of: int | None, restricted: bool) -> None:
        """Note a creation that probably succeeds."""
        parent = self.nodes.get(path.rpartition("/")[0])
        if parent is None or parent.ephemeral_of is not None or parent.restricted:
            return
        if sequential:
            path = f"{path}{parent.creates:010d}"
        if path not in self.nodes:
            parent.creates += 1
            self.nodes[path] = Sketch(ephemeral_of=ephemeral_of, restricted=restricted)

    def deleted(self, path: str) -> None:
        """Note a deletion that probably succeeds."""
        if path != ROOT and not self.children(path):
            self.nodes.pop(path, None)

    def session_closed(self, session: int) -> None:
        """Note that a session's ephemerals are gone."""
        for path in [path for path, node in self.nodes.items() if node.ephemeral_of == session]:
            self.nodes.pop(path)
        self.unwatched(session)

    def watched(self, session: int, path: str, kind: int) -> None:
        """Note a watch that is probably armed now."""
        self.watches.append((session, path, kind))

    def unwatched(self, session: int) -> None:
        """Note that a session's connection, and with it its watches, has gone."""
        self.watches = [watch for watch in self.watches if watch[0] != session]

    def watch_of(self, session: int) -> tuple[str, int] | None:
        """A watch that a session has probably armed, one of the last ones."""
        own = [(path, kind) for owner, path, kind in self.watches if owner == session]
        return self.random.choice(own[-3:]) if own else None
