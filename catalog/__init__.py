"""The catalog: what exists. Schemas, the network and its file, QoS graphs, statistics, and the data types that packages
share which never import each other. Imports no other package of ours.

Read in this order: ``schema`` and ``qos`` (values and graphs), ``network`` (the frozen graph of boxes and arcs),
``config/`` (the network file as checked models), ``build`` and ``assemble`` (from the file to a network), ``stats`` and
``load`` (costs, rates, load), ``catalog`` (the network in force). ``readings``, ``load_verdict`` and ``loss`` are the
shared data types, ``describe`` is the network as JSON, ``errors`` are the errors of a user's input.
"""
