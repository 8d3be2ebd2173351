"""The daemon: the engine of ``engine/run`` with sockets, HTTP, a log, the monitor and the shedder around it.

Read ``daemon`` (build, start, stop), ``service`` (the process: signals and exit codes), ``monitoring`` (the work that
is done ten times a second), ``readings`` (the counters that monitor and HTTP show), ``durable`` (log, checkpoints,
recovery), ``autopilot`` (``policy: auto``).
"""
