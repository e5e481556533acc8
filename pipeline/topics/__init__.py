"""`format("quorate")`: topics as rows for Spark, in batch and as a stream."""
