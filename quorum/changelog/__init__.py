"""The change log: every committed transaction with its before- and after-images, kept next to the state.

Each node derives it from what it applies, into files of its own, so that every node gives the same rows. It
has nothing to do with consensus: losing it loses history, never state.

Source: docs/clients/spark.md, "Change log".
"""
