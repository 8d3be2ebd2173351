"""Spark at the edge: streams filled by whatever ``spark.read`` reads, outputs emptied into what ``df.write`` writes.

    files, tables -> JVM -> Python workers -> Arrow over TCP -> the daemon's Spark port -> the network
    the network -> segments (a bounded buffer on disk) -> JVM -> staged files -> manifest -> the sink's path

Each folder is a process, and says what runs there:

``daemon/``
    The daemon, and ``aurorad ingest`` and ``aurorad compact``, which drive Spark for a daemon from a process of their
    own. Nothing here imports pyspark.
``driver/``
    One Python process beside the daemon. It owns a JVM, and is the only place that imports pyspark.
``executor/``
    Python workers of Spark's executors, on this machine or on a cluster. They run what the driver ships to them
    (``addPyFile``), and need nothing of aurorad installed.
``wire/``
    What crosses between them: messages, their encoding at both ends, and errors. Every folder may import it; apart from
    it the folders import nothing of one another (``tests/tidy/test_spark_processes.py``).

Who starts whom. ``daemon/host.py`` starts the driver on first use, in a process session of its own, at a low
priority. ``driver/launch.py`` starts the JVM. The JVM starts the Python workers. A daemon without a Spark job has
only the thread that listens on the Spark port.

What crosses
- The pipe (``wire/pipe.py``): requests of the daemon and answers of the driver, one line of JSON each. Every request
  has a deadline, or depends on the heartbeat.
- The Spark port (``wire/aurorad_wire.py``, ``wire/peer.py``): rows. Each executor connects for itself, names its job
  and partition, learns how many of its rows the daemon has, and sends the rest. ``format("aurorad")`` in
  ``clients/spark`` uses the same port and the same file.
- Segment files: the daemon writes the tuples of a sink to disk, and the driver's JVM reads them from there.

When one dies
- The daemon: the pipe closes, the driver kills the JVM and exits, and the workers end with their JVM. With a data_dir
  the next daemon goes on: with bulk jobs from the log, with sinks from their segments.
- The driver or the JVM (the driver exits when its JVM does): every open request fails with SparkLostError, the host
  removes what they left on disk, and the next request starts another driver. A bulk job goes on from the rows that the
  daemon has. A commit is repeated under its old name, and takes effect once.
- A JVM that hangs: the heartbeat ends it after 30 s with SIGKILL to the process group. Then as above.
- A Python worker or an executor: Spark repeats its task. The new attempt skips the rows that the daemon has, and the
  daemon refuses the rows of the attempt before it.

Refused: the driver as a thread of the daemon. Importing pyspark holds the GIL for most of a second, a hung JVM holds
its threads for ever, and a restart would have to reset private names of pyspark. A process is ended by its number.

Read in this order: ``wire/pipe``, ``daemon/host`` and ``driver/main`` (the two ends of the pipe); ``driver/launch``;
then for rows in ``daemon/jobs``, ``driver/sources`` and ``work``, ``executor/aurorad_push``, ``wire/aurorad_wire``,
``daemon/intake`` and ``progress``; for rows out ``daemon/outlets``, ``segments`` and ``committer``,
``driver/commits``; ``daemon/exchange`` for ``format("aurorad")``; and ``daemon/pipeline``, which puts the daemon's
part together.
"""
