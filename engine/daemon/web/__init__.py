"""The daemon's answers to requests over HTTP. ``router/http`` has the requests."""
