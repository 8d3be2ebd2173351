"""Tuples at rest. Modules in reading order:

    train, rows, strings        the train, its form for a few tuples, and the pools of its strings
    queue, manager              the queues of all arcs under one lock and one memory budget
    spilling, spill_levels,
    spill_blocks, spill_files   the same with trains beyond the budget on disk
    files                       the only module that opens a file
    encode, tree, checksum      trains and plain data as bytes, and their CRC
    log, log_records            the log that makes an acknowledged batch durable
    checkpoint                  the state that replaces the log before a position
    admission, source_numbers   the numbers of the batches that clients sent

No module here knows a socket, a box or a policy.
"""
