"""What survives: the log at work, output histories, checkpoints and recovery, for a network with a ``data_dir``.

In which order to read: ``records`` (what stands in the log), ``committer`` (a group: write, sync, admit, acknowledge),
``outbox`` (outputs with named subscribers), ``cut`` (the engine's state at one moment), ``keeper`` (all of it around
one engine: start, recover, checkpoint, stop). Theory of operation:

    connection -> submit -> [group: log, fdatasync] -> admit -> boxes -> emit -> [group] -> named subscribers
                                     |-> acknowledge

A tuple is processed only when it is on disk. So whatever an output shows to a named subscriber follows from tuples that
a restart will see again, and a client that was refused knows that nothing came of what it sent.

Recovery is the newest good checkpoint and a replay of the log from its position. Replay admits the same trains with the
same times, so the same results come out; those that named subscribers may have seen already are in the log too, and are
recognised one by one (``outbox``).
"""
