"""What `quorate doctor` looks at of brokers: the entry point `brokers` in the group `quorate.doctor`."""

from broker.doctor.look import CHECKS, LOADERS, look

__all__ = ["CHECKS", "LOADERS", "look"]
