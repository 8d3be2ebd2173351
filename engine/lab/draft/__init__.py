"""Write a first network file from some rows (``aurorad new``): ``sample.py`` looks at the rows, ``write.py`` writes."""
