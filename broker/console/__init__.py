"""What `quorate console` shows of brokers: the entry point `brokers` in the group `quorate.console`."""

from broker.console.extension import extension

__all__ = ["extension"]
