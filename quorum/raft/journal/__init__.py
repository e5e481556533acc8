"""The journal: log entries, term, vote and notes in segments, durable before they count."""
