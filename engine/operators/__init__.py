"""What a network computes: the boxes, and what they are made of.

- ``boxes``: one file a kind of box; ``base`` says how to write one.
- ``expressions``: SQL text, compiled to numpy kernels.
- ``state``: the parts of what boxes remember between trains: keys, strings, rows, time.
- ``windows``: the windows of the aggregate box.
- ``joins``: conditions and pairs of the boxes with two inputs.
"""
