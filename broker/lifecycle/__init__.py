"""A broker put together, from its configuration to its end: sessions, registration, settings of topics."""
