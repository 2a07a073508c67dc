"""Lists sources and brings their bytes here."""
