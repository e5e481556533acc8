"""What can be learned from a data directory that no node uses, by the code that a starting node runs."""
