"""Measures Quire on this machine, beside a bare SQL loop on the same database.

Everything lives in temporary folders and databases of its own, and is removed at the end.
"""
