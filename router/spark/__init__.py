"""Spark at the edge: streams filled by whatever ``spark.read`` reads, outputs emptied into what ``df.write`` writes.

    files, tables -> executors -> Arrow over TCP -> port.py -> admit -> the network
    the network -> segments.py (a bounded buffer on disk) -> driver -> staged files -> manifest -> the sink's path

Three processes, so that the streams never feel the JVM. The daemon holds no pyspark: ``host.py`` starts a *driver* (a
Python process of its own, ``driver.py``) on the first use, asks it for work over a pipe with a deadline on every
question, and starts another when it has died or gone silent. The driver starts the JVM (``java.py``, ``launch.py``) and
is the only place where pyspark is imported. Whole trees run at a low priority of the operating system.

Refused: the driver as a thread of the daemon. Importing pyspark holds Python's lock for most of a second, a frozen JVM
holds its threads for ever, and a restart means to reset private names of pyspark; a process is ended by its number.

Rows come over the *port*, not over the pipe: every executor connects for itself, says which part of which job it
brings, hears how many of its rows are here already, and sends the rest (``aurorad_wire.py``, which runs in the
executors and in ``clients/spark`` and imports nothing of ours).
"""
