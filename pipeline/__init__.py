"""The data pipeline on Spark: sources and sinks for topics and the quorum's change log, and jobs over them.

Reaches quorum and brokers only through their clients; neither imports it.
"""
