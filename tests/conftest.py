"""What all tests share: the settings of hypothesis."""

from hypothesis import settings

settings.register_profile("fpdb", deadline=None, derandomize=True, database=None)
settings.load_profile("fpdb")
