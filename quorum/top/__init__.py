"""The overview, topics and groups of a cluster in a terminal (see looking.py)."""
