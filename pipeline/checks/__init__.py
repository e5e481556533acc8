"""Checkers of recorded histories: pure functions from operations to verdicts.

They know what clients saw, never how the cluster works. Each returns a `Verdict`; a bad one carries the
shortest counter-example that it found. The same functions judge a chaos run and the pipeline's histories.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""
