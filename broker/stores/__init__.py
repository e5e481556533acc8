"""What the quorum holds for brokers: settings of topics, settings of a broker, producer ids."""
