"""SQL text to a tree of typed nodes: ``parse`` makes sqlglot's syntax tree, ``compile`` turns it into nodes.

``leaves`` makes literals and columns, ``messages`` has the words of errors, ``operators`` documents the operators. The
compiler imports every kernel and every function; none of them imports it.
"""
