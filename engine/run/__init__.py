"""The engine at run time: storage, routes, scheduler and workers around one network, without sockets or a monitor.

Read ``core`` (the parts and how they are wired), ``ingress`` and ``delivery`` (the way in and the way out), ``worker``
and ``executable`` (how a plan runs), ``followers`` (where the trains of a plan go), ``fuse`` (how a chain of filters
and maps becomes one pass), ``idle_path`` (the fast path for a few tuples that find the engine at rest), ``journeys``
(where a tuple's time went).
"""
