"""Quire beside other queues, on the same servers, doing the same jobs.

`given`, `marks`, `producer` and `apps` are also imported by an interpreter that has the other
queues, so they do not import Quire. The other modules run here.
"""
