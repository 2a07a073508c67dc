"""The same examples at every run, and no deadline: the machine may be busy."""

from hypothesis import settings

settings.register_profile("quire", deadline=None, derandomize=True, database=None)
settings.load_profile("quire")
