"""The daemon: the engine of ``engine/run`` with sockets, HTTP, a log, the monitor and the shedder around it.

Read ``daemon`` (build, start, stop), ``process/service`` (signals and exit codes), ``monitor/monitoring`` (the work
that is done ten times a second), ``monitor/readings`` (the counters that monitor and HTTP show), ``web`` (the answers
over HTTP), ``change`` (another network while it runs), ``ending`` (drains), ``durable`` (log, checkpoints, recovery),
``autopilot`` (``policy: auto``).
"""
