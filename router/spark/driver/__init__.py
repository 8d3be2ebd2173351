"""The driver process, which owns the JVM. The only folder that imports pyspark; it imports nothing of ``daemon/``."""
