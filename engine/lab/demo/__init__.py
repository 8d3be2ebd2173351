"""The demo: a made-up market, live. ``traffic`` sends it over TCP, ``scene`` starts and ends daemon and feed together,
``history`` writes a day of it as files. The market itself is ``engine/simulate/market.py``.

The feed is a process of its own and speaks to the daemon over TCP as any feed would: nothing in the engine knows it.
Prices, sizes and bursts come from one seed, so a demo that shows something odd can be repeated.
"""
