"""Shedding at the edge: rows that are dropped before they are decoded, and what the edge has to do.

When decoding is full, a drop behind it saves nothing. So a stream that sheds is read on while its bytes wait for the
decode thread, and a share of the rows is dropped there, as whole lines that nobody has parsed (``sample``). What waits
too long for the decode thread is dropped as well (``inbox``). ``gauge`` holds the share, which the load shedder sets,
and the counts that it decides by.
"""
