"""The durable part of a daemon with a ``data_dir``: log, output histories, checkpoints and recovery.

Read in this order: ``records`` (the log's records), ``committer`` (a group: write, sync, enter, acknowledge) and
``commit_thread`` (when), ``outbox`` and ``histories`` (outputs with named readers), ``cut`` (the engine's state at one
moment), ``checkpointer`` and ``restore`` (to disk and back), ``recovery`` (the replay), ``data_folder`` (files and
lock), ``data_format`` and ``gone_outputs`` (a folder of another version or of a changed network), ``keeper`` (all of it
around one engine: open, replay, start, stop). Theory of operation:

    ingress -> submit -> [group: log, fdatasync] -> enter -> boxes -> emit -> [group] -> named subscribers
                                     |-> acknowledge

A tuple is processed only when it is on disk. So everything that a named reader sees follows from tuples that a restart
will see again, and a client whose batch was refused knows that nothing of it was processed.

Recovery is the newest good checkpoint and a replay of the log from its position. The replay lets the same trains enter
with the same times, so the same results come out. The log also holds the results that named readers may have seen; the
replay recognises them one by one (``outbox``, ``regenerated``).
"""
