"""A network that changes under load, against an oracle of each query's life (``python -m tests.live.long``: more)."""
