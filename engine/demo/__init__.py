"""The demo: a made-up market, live. ``market`` says what happens, ``traffic`` sends it, ``scene`` runs all at once.

The generator is a process of its own and speaks to the daemon over TCP as any feed would: nothing in the engine knows
of it. Prices, sizes and bursts come from one seed, so a demo that shows something odd can be shown again.
"""
