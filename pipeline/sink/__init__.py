"""The sink of `format("quorate")`: rows to a topic, each exactly once, also through crashes of the driver."""
