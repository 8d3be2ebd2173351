"""Windows: what the aggregate box remembers, and how little it does per tuple.

Every window is made of **panes**, and a **group** is one key in one pane. A train costs three steps, each over whole
columns: its keys become small integers (``keys``), each row finds the slot of its group in a hash index (``groups``),
and each accumulator adds its column at those slots (``accumulators``, one indexed ufunc). None of them depends on how
many windows are open or how many keys there are.

- tumbling: a pane is a window (``panes``);
- sliding: a pane is the greatest common divisor of size and advance; above eight panes a window is put together from
  O(log n) nodes of a binary tree over the panes (``panes``, ``level``), never from its tuples;
- session: a pane is as wide as the gap, so that the tuples of one key in one pane belong to one session; a session is a
  run of neighbouring panes, linked when it closes (``session``);
- by count: a pane is a stretch of a key's own sequence (``counted``).

What cannot be folded into a fixed number of values (percentiles, distinct values, lists) is kept in a ``ValueLog``
(``runs``) until its panes are gone. Slots and key numbers are used again, and tables shrink with what they hold.
Refused: a table for each pane (ten thousand short windows in a train would cost ten thousand Python calls), and a
recomputation of sliding windows from their tuples.
"""
