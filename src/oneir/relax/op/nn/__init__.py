"""Operators of neural networks."""

from .activation import relu
