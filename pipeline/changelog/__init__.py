"""`format("quorate-changelog")`: the quorum's committed transactions as rows for Spark."""
