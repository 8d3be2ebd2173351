"""Files, standard input and standard output as sources and sinks, without Spark.

    inputs.py     open a file, a FIFO or standard input, and read it in large blocks; follow it as ``tail -F`` does
    reader.py     a source: a thread that reads, decodes, and admits through the ``StreamEntrance``
    targets.py    append whole chunks of rows to a file or to standard output
    writer.py     a sink: a thread that takes an output's trains, encodes and writes them
    table.py      rows as aligned columns, for people
    marks.py      what is where after a restart: how many rows of an output are in its file, up to which byte
    pipeline.py   all sources and sinks of a network, and the end of a run

A reader blocks and never sheds: it reads on when the engine has room, so a slow reader of standard output slows the
reading of standard input. A writer blocks its output while its target takes nothing.

With a data_dir a row is read once and written once, also over a crash. The log keeps the position of a file source with
its rows (the epoch of a batch number is the byte behind the batch). A file sink reads the output's history, and cuts
its file to what it knows of after a crash.
"""
