"""Cases that test a network: rows in, rows expected, under a virtual clock (``aurorad test``).

case_file.py  read a file of cases and check it against its network: all errors at once, each with its place
play.py       feed a case to an engine whose clock only the case moves
compare.py    compare the rows that came with those expected, and show the difference
"""
