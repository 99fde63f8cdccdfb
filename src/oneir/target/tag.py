"""Tags: names for well-known machines, as in `Target("nvidia/nvidia-a100")`."""

from __future__ import annotations

from collections.abc import Mapping

from ..runtime.error import InvalidValue
from .tag_configs import configs, set_config
from .target import Target


def list_tags() -> dict[str, Target]:
    """All tags, with the targets that they stand for."""
    return {name: Target(name) for name in list(configs)}


def register_tag(name: str, config: Mapping[str, object], override: bool = False) -> Target:
    """Let `name` stand for the target that `config` describes, and return that target.

    Raises `InvalidValue` when the name is taken, unless `override` is set, and what `Target` raises for `config`.
    """
    if name in configs and not override:
        raise InvalidValue(f'The tag "{name}" is taken: it is "{Target(name)}". Pass override=True to replace it.')
    target = Target(config)
    set_config(name, config)
    return Target(name) if target.tag == "" else target
