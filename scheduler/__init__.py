"""The scheduler: which boxes run next, in which order, on how many tuples.

``loop`` acts: it reads events, asks the policy and hands plans to the workers. ``state`` holds all that the scheduler
knows; ``policies`` decide on it and return a ``plan``; ``traversal`` orders the boxes of a superbox and ``trains`` says
how many tuples a call gets. ``facts`` are the numbers that policies read about boxes, computed from the statistics.
Policies that need an order keep it in an ``index``. The simulator runs the same code under a virtual clock.
"""
