"""What is wrong with a cluster, judged from what was seen of it. Pure: no clock, no network, no files."""
