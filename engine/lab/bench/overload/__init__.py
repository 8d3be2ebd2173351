"""``bench overload``: more load than the machine can process, and the utility that each output keeps.

The real daemon runs a network file. One process feeds it over sockets and keeps to its schedule whatever happens:
tuples that cannot be sent wait at the sender, and that wait counts. Another process reads the outputs. The event time
of a tuple is the time at which it was due, so the latency is that of an application, not only that of the daemon.

The experiment measures the knee first: the rate that keeps all workers busy. Then, for each shape of arrivals and each
multiple of the knee, it compares the daemon that sheds by QoS graphs with strategies that users know, on the same
daemon:

- ``block``: back-pressure; no tuple is lost, but all are late;
- ``oldest``, ``newest``: a short buffer at the input; when it is full, its oldest or its newest tuples are dropped;
- ``random``: the sender's process drops tuples at random, so that the daemon does not even read them. It knows how much
  to let in: of four rates up to the knee, the best one for it in the same run.

Their buffers are short (a quarter of a second at the knee), because long ones only make tuples later. So are the socket
buffers on both sides, for all strategies.

``best_plan`` computes the utility of the best possible shed plan: on the demo at twice the knee all four outputs keep
their full utility. A perfect ``random`` that lets in exactly the knee reaches 2.78 there if an output without a loss
graph counts in proportion, and 2.28 if any loss makes it worthless (``utility.py``). So no shedder can have more than
1.44 and 1.76 times that.

An output's utility is the mean utility of its latency graph over the tuples delivered, times the utility of its loss
graph at the share delivered. The share is one of value where a value graph or ``prefer`` defines it. An output without
a loss graph asks for everything. ``due_results`` knows to the tuple what would come out without loss.

Files: ``experiment`` (the knee, the strategies, a step), ``soak``, ``scenario`` (the rewritten network file),
``clients`` (the sending and reading processes), ``rows``, ``arrivals``, ``due_results``, ``tuple_worth``, ``utility``,
``best_plan``, ``contract`` (the simulator's prediction), ``report``.
"""
