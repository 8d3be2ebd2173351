"""``bench on-spark``: a network on Spark against the same in Structured Streaming's own SQL, and against the daemon."""
