"""Quotas of Kafka's clients: whose rate counts, what is over it, and for how long that is throttled. Pure."""
