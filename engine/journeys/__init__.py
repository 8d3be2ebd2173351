"""Why was this late? Where the time of sampled tuples went, from the socket to the output.

A tuple has no name, but it has a stamp: ``arrival_ns`` is given once and travels through filters, windows and joins
alike. So a *probe* is a stamp that is looked for. Some times a second a train that is admitted becomes one (``begin``);
from there on the engine's few places where trains change hands are asked whether the stamp is among them:

- on a queue (``Engine._announce``): since when it waits there;
- claimed for a plan (``SchedulerLoop.dispatch``): how many decisions passed it over, whose, at which priority;
- run by a worker (``WorkerPool.work``): how long it waited for one, and what each box on its way took;
- at an output (``deliver``): a *journey* is complete, with the fields of the tuple.

A probe of which nothing left its plan was filtered out, or a window holds it: then it is found again by its stamp when
the window comes out. At most ``TRAVELLING`` probes are under way, so under load, when everything waits, a journey costs
a look at a dictionary where trains change hands and nothing else. Journeys are kept in a ring, the slowest of each
output beside it.

Refused: a trace that every train carries (each verb of a train would copy it), and a record of every plan (3 % of the
throughput of trains of 10,000).
"""
