"""A torch that has none of the parts that the hooks use."""
__version__ = "9.9.0"
