"""What PyTorch's entry point names: importing this registers the backend.

PyTorch registers what an entry point gives, and fails if two threads look a backend up for the first time at once. Of
nothing it registers nothing; and a module is imported once.
"""

from __future__ import annotations

from torch._dynamo.backends.registry import register_backend

from .dynamo import backend

register_backend(backend, name="oneir")

REGISTERED = None
