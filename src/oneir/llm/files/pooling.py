"""How a model that embeds makes one vector of a text: the files that the package sentence-transformers writes.

pooling = read_pooling(folder)              # modules.json, 1_Pooling/config.json, 2_Dense, 3_Normalize
vector = pooling.vector(states)             # of the states (length, size) of a text's tokens
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue, UnsupportedError
from .safetensors import Safetensors
from .source import file_in, read_json, read_list


def _weighted_mean(states: np.ndarray) -> np.ndarray:
    weights = np.arange(1, len(states) + 1, dtype=np.float32)[:, None]
    return (states * weights).sum(0) / weights.sum()


_MODES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls": lambda states: states[0],
    "lasttoken": lambda states: states[-1],
    "max": lambda states: states.max(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len_tokens": lambda states: states.sum(0) / np.float32(np.sqrt(len(states))),
    "weightedmean": _weighted_mean,
}
_SWITCHES = {f"pooling_mode_{mode.removesuffix('_tokens')}": mode for mode in _MODES}
"""What configurations say of a mode, but for `_token` or `_tokens` at the end."""
_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "torch.nn.modules.linear.Identity": lambda x: x,
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True)
class Pooling:
    """What is done to the states of a text's tokens. Raises `UnsupportedError` for a mode that is not known."""

    modes: Sequence[str]
    """Of which the vectors stand one behind the other."""
    then: Sequence[Callable[[np.ndarray], np.ndarray]] = ()
    """What is done to the vector."""

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in _MODES]
        if unknown or not self.modes:
            found = ", ".join(unknown) or "none"
            raise UnsupportedError(f"states of tokens are pooled by {', '.join(_MODES)}; found {found}")

    def vector(self, states: np.ndarray) -> np.ndarray:
        """The vector float32 of the states (length, size) of one text."""
        vector = np.concatenate([_MODES[mode](states) for mode in self.modes])
        for step in self.then:
            vector = step(vector)
        return vector.astype(np.float32, copy=False)


def normalized(vector: np.ndarray) -> np.ndarray:
    """The vector with length 1."""
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def read_pooling(folder: Path) -> Pooling | None:
    """What the modules of a folder do; None where it has no `modules.json`.

    Raises `UnsupportedError` for modules of other kinds, and `InvalidValue` for damaged files.
    """
    path = file_in(folder, "modules.json")
    if not path.is_file():
        return None
    modes: list[str] = []
    then: list[Callable[[np.ndarray], np.ndarray]] = []
    for module in read_list(path):
        place, kind = (module.get(key) if isinstance(module, dict) else None for key in ("path", "type"))
        if not isinstance(place, str) or not isinstance(kind, str):
            raise InvalidValue(f"{path}: expected a path and a type of each module, found {module!r}")
        match kind.rpartition(".")[2]:
            case "Transformer" if place == "":
                pass
            case "Pooling":
                modes += _modes(file_in(file_in(folder, place), "config.json"))
            case "Dense":
                then.append(_dense(file_in(folder, place)))
            case "Normalize":
                then.append(normalized)
            case _:
                raise UnsupportedError(
                    f"{path}: expected Transformer in the folder itself, Pooling, Dense and Normalize, found {kind} in "
                    f"{place!r}"
                )
    return Pooling(modes, then)


def _modes(path: Path) -> list[str]:
    config = read_json(path)
    if (mode := config.get("pooling_mode")) is not None:
        return [str(part) for part in mode] if isinstance(mode, list) else [str(mode)]
    on: list[str] = [key for key, value in config.items() if value is True]
    on = [key.removesuffix("_tokens").removesuffix("_token") for key in on]
    return [_SWITCHES.get(key, key) for key in on if key.startswith("pooling_mode_")]


def _dense(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    config, weights = read_json(file_in(folder, "config.json")), Safetensors(folder)
    name: Any = config.get("activation_function")
    if name not in _ACTIVATIONS:
        raise UnsupportedError(f"{folder}: expected an activation of {', '.join(_ACTIVATIONS)}, found {name!r}")
    names = weights.names()
    if "linear.weight" not in names:
        raise InvalidValue(f"{folder}: expected the tensor 'linear.weight', found {', '.join(names) or 'none'}")
    weight = weights.read("linear.weight").astype(np.float32)
    bias = weights.read("linear.bias").astype(np.float32) if "linear.bias" in names else np.zeros(len(weight))
    return lambda x: _ACTIVATIONS[name](weight @ x + bias)
