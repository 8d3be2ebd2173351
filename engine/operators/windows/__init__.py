"""Windows: what the aggregate box remembers, and how little it does for each tuple.

Every window is made of **panes**, and a **group** is one key in one pane. A train costs three steps, each over whole
columns. Its keys become small integers (``state/keys``). Each row finds the slot of its group in a hash index
(``groups``). Each accumulator adds its column at those slots (``accumulators``, one indexed ufunc). None of the steps
depends on the number of open windows or keys.

- Tumbling: a pane is a window (``panes``).
- Sliding: a pane is as long as the greatest common divisor of size and advance. Above eight panes a window is put
  together from O(log n) nodes of a binary tree over the panes (``panes``, ``level``), never from its tuples.
- Session: a pane is as long as the gap, so that the tuples of one key in one pane belong to one session. A session is a
  run of neighbouring panes, linked when it closes (``session``).
- By count: a pane is a stretch of the sequence of a key (``counted``).

Functions that cannot fold their values into a fixed number of cells (percentiles, distinct values, lists) keep them in
a ``ValueLog`` until the pane is gone. Slots are used again, and tables shrink with their content.

Refused: a table for each pane (ten thousand short windows in a train would cost ten thousand Python calls), and
computing sliding windows again from their tuples.
"""
