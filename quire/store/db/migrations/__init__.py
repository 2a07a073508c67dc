"""One module per schema version: `mNNNN_what.py` with `up(conn)`. Not changed after a release.

`OLDEST = N` in a module: a release whose last migration is N keeps working after it.
"""
