"""``bench overload``: more than the machine can take, and what each output is still worth.

The real daemon runs a network file, fed over sockets by a process that keeps to its schedule whatever happens (tuples
that cannot be sent wait at their source, and that counts), and read by another. Each tuple carries the moment it was
due in its event time, so latency is what an application sees, and not only what the daemon knows of.

First the knee: what it takes to keep all workers busy. Then, for each shape of arrivals and each multiple
of the knee, the daemon that sheds by QoS graphs, beside what users know from elsewhere on the same daemon:

- ``block``: push back, lose nothing, be late;
- ``oldest``, ``newest``: a short buffer at the input that, when it is full, loses its oldest or its newest tuples;
- ``random``: drop at the input by chance what is too much, in the sender's process, so that the daemon does not even
  read it. How much to let in it is told: of four rates up to the knee the one that is best for it in the same run.

Their buffers are short (a quarter of a second of the knee), because long ones would only make them later, and so are
those of the sockets on both sides, for all strategies.

Beside them stands what the best plan there is would be worth (``ideal``): on the demo at twice the knee all four
outputs keep their full utility. A perfect ``random`` that lets in exactly the knee comes to 2.78 there if an output
that asked for no loss counts in proportion, and to 2.28 if it counts as lost (``measure.py``): no shedder can have more
than 1.44 and 1.76 times that.

An output's utility is that of its latency graph, mean over what came out, times that of its loss graph at the share
that came out (of its value, where a value graph or ``prefer`` says what that is; an output without a loss graph asks
for all of it). What would have come out is known to the tuple (``expect``).
"""
