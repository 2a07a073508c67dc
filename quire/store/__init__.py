"""The database: the only package that speaks SQL. Functions over a connection, no classes but one.

A function takes the open connection first and the time as `now`, and never commits.
"""
