"""The data directory of a broker: whose it is, which logs are in it, and their high watermarks."""
