"""A quorum inside a process, for tests and tools: `async with ensemble(nodes=3) as quorum: quorum.hosts`."""

from quorum.local.embedded import Ensemble, ensemble, ensemble_in_thread
from quorum.local.threads import in_thread

__all__ = ["Ensemble", "ensemble", "ensemble_in_thread", "in_thread"]
