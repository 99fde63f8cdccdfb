"""What compilers and libraries of others need to take part: the patterns that they know, and helpers for checks."""

from .pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns
