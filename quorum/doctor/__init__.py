"""Looks at a running cluster and at files of this machine, for the checks of `quorum.health`."""
