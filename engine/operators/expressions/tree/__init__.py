"""What a compiled expression is made of, the lowest layer: it imports nothing else of this package.

- ``vector``: a ``Vector`` is one column of values with its NULLs; a ``Scope`` holds the columns of one train.
- ``node``: a ``Node`` is one subexpression with its type and a closure that computes it over a scope.
- ``coerce``: the type rules of Spark, that is which types meet where, and ``Refusal``.
"""
