"""The console: the page at ``/``, and the answers that only it needs.

- ``source/`` has the page's own code, and ``built/`` what esbuild made of it (``make console``). Only ``built/`` is
  served, so no user of the daemon needs Node. ``built/made_from.json`` says from which source; a test compares.
- ``live`` sends the statistics to open pages once a second, over one connection each (Server-Sent Events).
- ``past`` keeps the statistics of the last hour, for the page's scrubber.
- ``handlers`` has the routes. Everything that the page shows comes from ``/api/v1``, which anybody may ask.
"""
