"""Members of vocabularies inside of a builder: what they give is carried out at once, not handed to a parser."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any

builders: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("builders", default=())
"""The builders that are open, the innermost one last; none while a script is read."""


@contextmanager
def reading() -> Generator[None]:
    """A script is read, perhaps in the `with` of a builder, which is no concern of the script's."""
    token = builders.set(())
    try:
        yield
    finally:
        builders.reset(token)


def act_in_builders(names: dict[str, Any], modules: Collection[str], perform: Callable[[Any], Any]) -> None:
    """Lets those functions and frames among `names` that come from `modules` act in builders, by `perform`."""

    def acting(member: Any) -> Any:
        @functools.wraps(member, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            value = member(*args, **kwargs)
            return perform(value) if builders.get() else value

        return call

    for name, member in names.items():
        if (inspect.isfunction(member) or inspect.isclass(member)) and member.__module__ in modules:
            names[name] = acting(member)
