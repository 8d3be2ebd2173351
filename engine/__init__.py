"""The engine builds all the parts and runs them. Its theory of operation, in the order in which a tuple meets it:

1. Bytes come in on the I/O thread (``router/server``, ``connection``). A codec makes a train of them, stamped once with
   its time of arrival; a bad line is refused and the good ones around it go through.
2. ``router/routes.admit`` puts the train on the arcs behind its stream: the same columns on every one of them, nothing
   is copied. Each arc to a box is a queue in the storage manager, which counts the train's bytes once.
3. The scheduler hears of it through its mailbox. ``SchedulerState.apply`` is the only place where what it knows
   changes; a policy, which is a pure function, looks at the state and gives a plan: these boxes, in this order, this
   many tuples.
4. The loop claims the trains and puts the plan on the execution queue. A worker takes it. ``engine/executable`` has
   compiled the plan's sequence of boxes before: chains of filters and maps run fused (``engine/fuse``), a box that
   comes right after its feeder takes its trains without a queue. (A few tuples that find the engine at rest need
   neither 2 nor 3: ``engine/short_way``.)
5. What leaves a superbox goes through ``router/routes`` again: to the next queue, or to an output, where its latency is
   recorded and its subscribers get it (``router/subscribers``), encoded once for all of them on the worker's thread.
6. The worker says that the plan is finished. Its boxes counted what they did; ten times a second the monitor folds that
   into the statistics that the policies read, checks that no tuple is unaccounted for, and wakes whatever waits for
   time to pass (``engine/ticker``).

Read in this order: ``catalog/schema``, ``storage/train``, ``catalog/network``, ``boxes/base`` and ``boxes/filter``,
``scheduler/state`` and ``loop``, ``executable`` and ``fuse``, ``core``, ``router/routes``, ``daemon``.
"""
