"""Every setting of a broker: sections, ranges, relations, and the secret that brokers share."""
