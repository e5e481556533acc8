"""The jobs of `quorate pipeline`: questions about a cluster's history, answered by Spark."""
