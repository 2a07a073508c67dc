"""One module per schema version: `mNNNN_what.py`, with `up(conn)`. Never edited once released."""
