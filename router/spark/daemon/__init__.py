"""The daemon's part of Spark: sources, sinks, the Spark port, and the host of the driver.

Nothing here imports pyspark, and nothing here imports ``driver/`` or ``executor/``: the daemon meets them on the wire.
"""
