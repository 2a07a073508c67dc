"""One module per schema version: `mNNNN_what.py`, with `up(conn)`. Never edited once released.

`OLDEST = N` in a module says that a Quire whose last migration is N can go on working after it.
"""
