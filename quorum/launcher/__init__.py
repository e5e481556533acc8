"""Supervised local processes: `quorate up` and `down`."""
