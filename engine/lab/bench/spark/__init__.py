"""``bench spark``: files through Spark into the network and back. ``bench.py`` has throughput and the effect on live
outputs, ``memory.py`` the daemon's memory during a bulk job.
"""
