"""One module a queue: `create()`, `submit(numbers, seconds)` one by one, and perhaps `submit_many`.

Its workers import the module or run it. Settings are the queue's defaults except where the module
says why not; `rows.py` has the sentence that the report prints about them.
"""
