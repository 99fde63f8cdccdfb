"""Reads TVMScript: the syntax tree of Python, walked by evaluators that build nodes.

The vocabularies go by this package's name as well: `from oneir.script.parser import ir as I, relax as R, tir as T`.
"""
