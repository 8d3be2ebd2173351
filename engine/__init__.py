"""The engine builds all the parts and runs them. This is its theory of operation, in the order in which a tuple meets
it.

**In.**
1. The I/O thread reads bytes from a socket (``router/server``, ``router/connection``). A codec (``router/codecs``)
   makes a train of them, stamped once with its time of arrival. It refuses a bad line, and the good lines around it go
   on. Rows from Spark (``router/spark/daemon``) and from files and standard input (``router/files``) come on threads
   of their own.
2. ``Ingress.admit`` (``engine/run/ingress``) is the one door in. It shows the train to taps, counts it and, where
   there is a data_dir, hands it to the log. A train that is on disk comes back by ``Ingress.enter_logged``. Then both
   set the stream's event time, drop what the shed plan drops, and put the train on the arcs behind its stream: the
   same columns on every arc, nothing is copied. An arc to a box is a queue in the storage manager, which counts the
   bytes once.

**Who runs next.**
3. The train's event is in the scheduler's mailbox, and the scheduler's thread (``scheduler/loop``) is woken if it could
   decide anything. ``SchedulerState.apply`` is the only place that changes the state. A policy is a pure function of
   that state; it returns a plan: these boxes, in this order, this many tuples.
4. The scheduler's thread claims the plan's trains and puts the plan on the execution queue, which it fills ahead. A
   worker (``engine/run/worker``) takes it. ``engine/run/executable`` has compiled the sequence of boxes: chains of
   filters and maps run as one pass (``engine/run/fuse``), and a box behind its feeder takes the trains without a queue.
   The boxes and what they compute with are in ``engine/operators``.
5. The idle fast path (``engine/run/idle_path``) is the one exception. At most 128 tuples from a socket that find the
   engine at rest leave the scheduler no choice. The I/O thread runs them itself through boxes that are prompt
   (``Box.is_prompt``), without a queue and without a decision.

**Out.**
6. ``router/routes`` takes what leaves a plan: to the next queue, or to an output. ``Delivery``
   (``engine/run/delivery``) is the one door out: it logs, records the latency, completes journeys, shows taps, and
   hands the train to the output's readers (``router/subscribers``), which encode it once for all of them. The I/O
   thread writes to their sockets.

**Beside it.**
7. The worker posts that the plan is finished; its boxes have counted what they did. Ten times a second the monitor
   (``qos_monitor``, ``engine/daemon/monitor/monitoring``) folds the counts into the statistics that the policies
   read, checks that no tuple is unaccounted for, wakes boxes that wait for time to pass, and lets the load shedder
   (``load_shedder``) decide on a new shed plan.

| folder | what it is |
|---|---|
| ``run`` | the engine at run time: ingress, workers, executables, delivery; no sockets |
| ``daemon`` | the process: sockets, HTTP, log and checkpoints (``durable``), monitor, signals |
| ``operators`` | boxes, their windows, joins and state, and SQL expressions |
| ``simulate`` | the same scheduler on a virtual clock; ``policy: auto`` asks it |
| ``lab`` | benchmarks, the papers' figures, the demo, drawings |
| ``cli`` | the commands |

Read in this order: ``catalog/schema``, ``storage/train``, ``catalog/network``, ``operators/boxes/base`` and
``filter``, ``scheduler/state`` and ``loop``, ``run/executable`` and ``fuse``, ``run/core``, ``run/ingress`` and
``delivery``, ``router/boundary``, ``daemon/daemon``.
"""
