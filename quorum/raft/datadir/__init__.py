"""Whose data directory this is: identity, the founding of a cluster, and a forced start."""
