"""The same network on Spark Structured Streaming, with the same answers: ``aurorad run FILE --on spark``.

    sources -> one frame with the tuples of all streams          sources
    -> row-wise boxes as Spark SQL, rows of lanes                 front, same_text, lanes
    -> shuffle by key -> our kernels, a shard for each partition  stage_task, shard, stage_spec
    -> another shuffle where the key changes -> ...
    -> files of results and of state -> manifest                  batches, store
    -> commits to the sinks                                       router/spark/driver/commits

``plan`` decides what runs where and is pure; ``refusals`` says what cannot run there. ``service`` is the process,
``run`` the query, ``shipping`` brings our packages to the executors.

Refused: Spark's own stateful operators. Their late rule is a batch more lenient, they treat equality at the watermark
and the gap of a session in another way, and their band join did not finish in 90 s where ours took 4. Refused:
``transformWithState``: 3 to 6 times the CPU by shard, and hopeless by key.

Refused: ``mapInArrow``. It needs pandas and wraps every row in another row. Stages read the Arrow messages that Spark
makes (``router/spark/driver/work.arrow_messages``), and hand trains to the next stage as bytes.

Read in this order: ``plan``, ``lanes``, ``front``, ``shard``, ``stage_task``, ``batches``, ``run``, ``service``.
"""
