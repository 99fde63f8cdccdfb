"""Reads TVMScript: the syntax tree of Python, walked by evaluators that build nodes."""
