"""HTTP: the table of operations, the app that answers them, the OpenAPI document, and the server.

Read in this order: ``operations`` (what there is), ``app`` and its sisters (who answers), ``server`` (connections).
"""
