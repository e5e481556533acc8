"""A private copy of pysyncobj's modules, made from the installed source, in a simulated world.

Decides which name of the outside a module of the copy gets instead: the clock, randomness, files, renames,
the poller. The copy lives under package names of its own; the installed modules are neither imported nor
changed by it. What runs is the library's own code, but for the `Fix`es that a copy was asked for.

Whose clock, randomness and disk it is decides `running`: the node that runs, one at a time.
"""

from __future__ import annotations

import builtins
import gzip
import importlib.metadata
import logging
import sys
import types
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.simulation.stock.disk import RecordFile, StockDisk, StockFile

VERSION = "0.3.17"
_LIBRARY = "pysyncobj"
#: reads of the clock within one event that cost no time, and the time that each further one costs; without
#: it a loop that waits for time to pass never ends
CLOCK_READS_FREE = 64
CLOCK_READ_SECONDS = 0.01


class WrongLibraryError(Exception):
    """The installed pysyncobj is not the one whose defects are known."""


class Running(Protocol):
    """The node whose code runs."""

    disk: StockDisk

    def seconds(self) -> float:
        """Return the node's clock."""

    def random(self) -> float:
        """Return the node's next random number, from 0 to 1."""

    def make_journal(self, path: str | None) -> Any:
        """Return a journal: of the copy's classes, in a file if there is a path."""


@dataclass(frozen=True)
class Fix:
    """The smallest mending of one defect: the control of its detection.

    Attributes:
        defect: its number in the table, as "D1".
        replacements: (module, text that occurs exactly once in its source, what stands there instead).
        helpers: names that the new text uses.
        whole_compaction: the journal's compaction happens completely or not at all.
    """

    defect: str
    replacements: tuple[tuple[str, str, str], ...] = ()
    helpers: tuple[tuple[str, Any], ...] = ()
    whole_compaction: bool = False


class StockCopy:
    """One private copy.

    Attributes:
        running: the node that runs; set before any code of the copy is called.
        fixes: the defects that are mended in it.
    """

    running: Running

    def __init__(self, fixes: tuple[Fix, ...] = ()) -> None:
        """Load a copy.

        Raises:
            WrongLibraryError: the installed pysyncobj has another version, or a fix does not fit it.
        """
        self.fixes = fixes
        found = importlib.metadata.version(_LIBRARY)
        if found != VERSION:
            raise WrongLibraryError(f"pysyncobj {found} is installed, not {VERSION}: pip install -e '.[dev]'")
        self._sources = _sources()
        # one length for all, as it stands in snapshots: a control differs by its fix only
        kind = zlib.crc32(" ".join(fix.defect for fix in fixes).encode())
        self._package = types.ModuleType(f"stock_{_LIBRARY}_{kind:08x}")
        self._package.__path__ = []
        self._modules: dict[str, types.ModuleType] = {}
        assert self._package.__name__ not in sys.modules, "one copy of each kind"
        sys.modules[self._package.__name__] = self._package  # what is pickled is found by name
        quiet = logging.getLogger(self._package.__name__)
        quiet.propagate = False
        quiet.setLevel(logging.CRITICAL + 1)
        self._outside = self._build_outside()
        self._builtins = {**vars(builtins), "__import__": self._import, "open": self._open}
        syncobj: Any = self._module("syncobj")
        self.syncobj: Any = syncobj
        self.journal: Any = self._module("journal")
        self.transport: Any = self._module("transport")
        self.node: Any = self._module("node")
        self.config: Any = self._module("config")
        syncobj.PIPE_NOTIFIER_ENABLED = False
        syncobj.createJournal = lambda path: self.running.make_journal(path)

    @property
    def whole_compaction(self) -> bool:
        """Whether the journal's compaction is mended."""
        return any(fix.whole_compaction for fix in self.fixes)

    # --- the outside

    def _build_outside(self) -> dict[str, Any]:
        """Return the modules of the standard library that are others in here."""
        files = types.SimpleNamespace(
            isfile=lambda path: self.running.disk.exists(path),
            exists=lambda path: self.running.disk.exists(path),
        )
        names = types.SimpleNamespace

        def rename(old: str, new: str) -> None:
            self.running.disk.rename(old, new)

        return {
            "os": names(name="posix", path=files, rename=rename),  # it has no fork
            "shutil": names(move=rename),
            "random": names(random=lambda: self.running.random()),
            "gzip": names(GzipFile=_gzip_file),
        }

    def _open(self, path: str, mode: str) -> StockFile:
        return self.running.disk.open_stream(path, mode)

    def _monotonic(self) -> float:
        return self.running.seconds()

    # --- loading

    def _import(
        self, name: str, _globals: Any = None, _locals: Any = None, names: Any = (), level: int = 0
    ) -> Any:
        """Stand in for `__import__` in the modules of the copy."""
        if level:
            return self._module(name)
        if name.startswith(_LIBRARY + "."):
            self._module(name.removeprefix(_LIBRARY + "."))
            return self._package
        if name in self._outside:
            return self._outside[name]
        return __import__(name, _globals, _locals, names, level)

    def _module(self, name: str) -> types.ModuleType:
        """Return a module of the copy, loaded at the first time."""
        module = self._modules.get(name)
        if module is not None:
            return module
        module = self._modules[name] = types.ModuleType(f"{self._package.__name__}.{name}")
        module.__package__ = self._package.__name__
        sys.modules[module.__name__] = module
        setattr(self._package, name, module)
        if name == "monotonic":
            module.monotonic = self._monotonic  # type: ignore[attr-defined]
            return module
        module.__dict__["__builtins__"] = self._builtins
        for fix in self.fixes:
            module.__dict__.update(fix.helpers)
        source = self._mended(name)
        exec(compile(source, f"<{module.__name__}>", "exec"), module.__dict__)
        if name == "poller":
            module.createPoller = lambda _kind: _NoPoller()  # type: ignore[attr-defined]
        elif name == "journal":
            module.ResizableFile = self._record_file  # type: ignore[attr-defined]
        return module

    def _mended(self, name: str) -> str:
        source = self._sources[name]
        for fix in self.fixes:
            for module, old, new in fix.replacements:
                if module == name:
                    if source.count(old) != 1:
                        raise WrongLibraryError(f"fix {fix.defect}: {old!r} is not once in {name}.py")
                    source = source.replace(old, new)
        return source

    def _record_file(self, path: str, defaultContent: bytes) -> RecordFile:  # noqa: N803 - the library's name
        return self.running.disk.open_records(path, defaultContent)


class _NoPoller:
    """The poller of a node whose transport brings messages by itself."""

    def poll(self, _seconds: float) -> None:
        """Do nothing: the world says when the next turn is."""


def _gzip_file(fileobj: Any, mode: str = "rb") -> gzip.GzipFile:
    """Open a compressed stream without the time of day in its head."""
    return gzip.GzipFile(filename="", fileobj=fileobj, mode=mode, compresslevel=1, mtime=0)


def _sources() -> dict[str, str]:
    """Return {module: source} of the installed package, without importing it."""
    distribution = importlib.metadata.distribution(_LIBRARY)
    folder = Path(str(distribution.locate_file(_LIBRARY)))
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
