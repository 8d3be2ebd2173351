"""Journeys: where the time of sampled tuples went, from the socket to the output. ``aurorad explain`` shows them.

A tuple has no identity, but it has a stamp: ``arrival_ns`` is set once and passes through filters, windows and joins. A
*probe* is a stamp that the engine looks for. At most 200 times a second a train that enters the network gives one. From
then on the few places where trains change hands ask the recorder whether the stamp is among them:

- put on a queue (``Engine.announce``): when the probe began to wait there;
- claimed for a plan (``SchedulerLoop.dispatch``): how many decisions passed it over, for which boxes, at what priority;
- run by a worker (``WorkerPool.work``): how long the plan waited for a worker, and how long each box on the way took;
- delivered (``Delivery.deliver``): the *journey* is complete, and has the fields of the tuple.

A probe that does not leave its plan was filtered out, or is in the state of a box, such as a window. In the second case
the output finds it by its stamp when the window comes out.

A user may wait for the next tuple of an output that meets a condition (``explain --follow``). Until it comes, every
train that may reach that output gives a probe.

Cost: at most ``UNDER_WAY_AT_MOST`` probes are under way at once. So under overload, when everything waits, journeys
cost one look at a dictionary where trains change hands. The newest journeys are kept in a ring, and the slowest ones of
each output beside it.

Refused: a trace that every train carries (each method of a train would copy it), and a record of every plan (it took
3 % of the throughput of trains of 10,000 tuples).

Read ``journey`` (hops and the parts of a latency), ``probe``, ``recorder``, ``explain`` (the answer to a user).
"""
