"""What enters the log: batches and their origins, payload formats, and what operators ask of a cluster."""
