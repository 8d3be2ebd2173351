"""What a task runs in a Python worker of an executor. The driver ships these files with ``addPyFile``.

An executor may be a machine without aurorad, so nothing here imports aurorad's packages: a file sees only the other
shipped files, under their bare names (``driver/main.py`` lists them), and pyarrow, which Spark's workers need anyway.
"""
