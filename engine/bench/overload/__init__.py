"""``bench overload``: more than the machine can take, and what each output is still worth.

The real daemon runs a network file, fed over sockets by a process that keeps to its schedule whatever happens (tuples
that cannot be sent wait at their source, and that counts), and read by another. Each tuple carries the moment it was
due in its event time, so latency is what an application sees, and not only what the daemon knows of.

First the knee: what it takes to keep all workers busy. Then, for each shape of arrivals and each multiple
of the knee, the daemon that sheds by QoS graphs, beside what users know from elsewhere on the same daemon:

- ``block``: push back, lose nothing, be late;
- ``oldest``, ``newest``: a short buffer at the input that, when it is full, loses its oldest or its newest tuples;
- ``random``: drop at the input by chance exactly what is too much. That it knows how much is a gift.

Their buffers are short (a quarter of a second of the knee), because long ones would only make them later.

An output's utility is that of its latency graph, mean over what came out, times that of its loss graph at the share
that came out (of its value, where a value graph or ``prefer`` says what that is; an output without a loss graph asks
for all of it: its share is its utility). What would have come out is known to the tuple (``expect``).
"""
