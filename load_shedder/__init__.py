"""What to give up when there is more than the machine can take.

Read in this order: ``places`` (where tuples may be dropped), ``segments`` (the network cut there), ``graphs`` (loss
graphs and values in pieces), ``walk`` and ``road_map`` (what to give up next), ``controller`` (how far), ``shedder``
(all of it on a tick), ``warnings`` (what cannot work), ``drop`` (which tuples, once a plan says how many).
"""
