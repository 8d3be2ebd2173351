"""The lab: what measures, demonstrates or draws. No daemon that serves a network imports it.

- ``bench/``: benchmarks, each against a baseline in the same run (``aurorad bench NAME``). A new one is one file there.
- ``figures/``: the experiments that the papers plot, each with the paper's claim and a verdict (``aurorad bench
  figure P0.5``). A new one is one file there.
- ``demo/``: the made-up market behind ``aurorad demo``, and a day of it as files (``aurorad history make``).
- ``draw/``: a network as a picture (``aurorad graph``).
- ``processes.py``: start and end the daemon and other programs of ours as child processes.

Layers: the lab may import the daemon and everything below it; only the command line (``engine/cli``) imports the lab.
"""
