"""Compaction: of each key the last record stays. What is decided here knows no clock and no files."""
