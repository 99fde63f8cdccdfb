"""Small helpers with which graphs are put together in tests and tutorials."""

from . import nn, transform
