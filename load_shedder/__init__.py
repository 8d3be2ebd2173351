"""Load shedding: what the engine gives up when the streams demand more work than the machine can do.

Aurora's answer to an overload is to drop tuples on purpose, early, and where it costs the least utility. The QoS graphs
of the outputs are the measure: a loss graph says how much utility an output keeps when it receives a share of its
tuples. One number drives everything: the *excess*, the work per second beyond the engine's capacity. The monitor
measures it ten times a second (``qos_monitor/verdict``). The rest happens here:

    excess -> how much work to save -> which drops save it at the least loss -> masks on arcs -> the record of the loss

1. **Decide** (``decide/``, pure functions of numbers). A tuple may be dropped only on a *place*: an arc behind which no
   answer becomes silently wrong. The *road map* lists, for these places, all moves in order of loss over gain: utility
   lost over work saved. A *shed plan* is the beginning of that list, up to the work that must be saved. The
   *controller* says how far to go: up at once, down slowly, never to and fro.
2. **Apply** (``apply/``). An arc with drops gets a mask that picks the tuples of each train: at random, by value, or by
   whole windows. Without a plan no arc has a mask, and no train pays. Two limits act without a plan: tuples *overflow*
   when memory is full before a plan comes, and tuples *expire* when they can reach no output before it is worthless.
3. **Record** (``record/``). The *ring* of past plans answers "what was dropped, and why was that the cheapest?". The
   *book* tells windowed boxes which stretches of event time lack tuples, so that no window is wrong without notice.

``control_loop`` runs decide and apply once for each tick of the monitor. The engine applies masks in two places: on the
arcs of streams (``engine/run/ingress``) and behind boxes (``engine/run/executable``).

This package imports ``catalog`` and ``storage`` alone. The engine hands in the rest: the monitor's judge of the load,
and the compiler of ``prefer`` expressions (``decide/values``).

Read in this order: ``shed_plan`` (the data), ``decide/places`` (where), ``decide/values`` (the worth of a tuple),
``decide/segments``, ``decide/graphs``, ``decide/walk`` and ``decide/road_map`` (which drops), ``decide/controller``
(how far), ``decide/unit_caps`` and ``decide/urgent_levels`` (what is full alone, and what is urgent alone),
``decide/incurable``, ``decide/shedder`` (all of it on a tick), ``control_loop``; then ``apply/picks`` (which tuples),
``apply/arc``, ``apply/shedding`` (the plan in force), ``apply/limits``; then ``record/ring``, ``record/losses`` and
``record/book``. ``decide/warnings`` tells the user in advance where shedding cannot work.
"""
