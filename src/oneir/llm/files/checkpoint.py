"""The weights and the configuration of a model, whatever files they are in.

checkpoint = Checkpoint.open("TinyLlama-1.1B")              # config.json and safetensors, plain, blocks, AWQ or GPTQ
checkpoint = Checkpoint.open("tinyllama.Q4_0.gguf")
checkpoint.config["hidden_size"]
checkpoint.read("model.layers.0.self_attn.q_proj.weight")
checkpoint.quantized("model.layers.0.self_attn.q_proj.weight")   # the blocks of a GGUF file, or None
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ...runtime.error import InvalidValue
from .block_weights import BlockWeights
from .blocks import QuantizedTensor
from .gguf import GGUFFile
from .gguf_model import GGUFModel
from .microscaled import MicroscaledWeights
from .packed import PackedWeights
from .safetensors import Safetensors
from .source import file_in, read_json

_SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


class Weights(Protocol):
    """Tensors by Hugging Face's names."""

    def names(self) -> list[str]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def read(self, name: str) -> np.ndarray: ...
    def format(self, name: str) -> str: ...
    def quantized(self, name: str) -> QuantizedTensor | None: ...


@dataclass(frozen=True)
class Checkpoint:
    """A model's files. Weights stay on disk until they are read."""

    path: Path
    config: dict
    """What `config.json` says; of a GGUF file, what it would say."""
    generation: dict
    """What `generation_config.json` says: defaults of sampling, ids that end a text. Empty if there is none."""
    weights: Weights

    @staticmethod
    def open(path: str | Path) -> Checkpoint:
        """The model in a folder, or in a file whose name ends in `.gguf`.

        Raises `InvalidValue`, which says what is missing or damaged, and `UnsupportedError` for what is not read.
        """
        path = Path(path)
        if path.is_dir():
            return _from_folder(path)
        if path.suffix.lower() != ".gguf":
            raise InvalidValue(f"{path}: expected the folder of a model or a .gguf file, found {_what(path)}")
        model = GGUFModel(GGUFFile(path))
        return Checkpoint(path, model.config, _gguf_generation(model), model)

    def names(self) -> list[str]:
        """The names of the tensors, such as `model.layers.0.self_attn.q_proj.weight`."""
        return self.weights.names()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor. Raises `InvalidValue` for a name that is not there."""
        self._known(name)
        return self.weights.shape(name)

    def read(self, name: str) -> np.ndarray:
        """A tensor in the dtype that it is stored in, as a read-only view of the file if that can be; what is quantized
        as float32. Raises `InvalidValue` for a name that is not there."""
        self._known(name)
        return self.weights.read(name)

    def format(self, name: str) -> str:
        """GGML's name of the format that a tensor is stored in, such as "Q4_0" or "BF16".

        Raises `InvalidValue` for a name that is not there.
        """
        self._known(name)
        return self.weights.format(name)

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The blocks of a tensor; None of one in a plain dtype, and of AWQ and GPTQ.

        Raises `InvalidValue` for a name that is not there.
        """
        self._known(name)
        return self.weights.quantized(name)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end a text, as the generation's configuration says or else the model's; maybe none."""
        for source in (self.generation, self.config):
            ids = source.get("eos_token_id")
            ids = ids if isinstance(ids, list) else [ids]
            known = tuple(token for token in ids if type(token) is int)
            if known:
                return known
        return ()

    def _known(self, name: str) -> None:
        try:
            self.weights.shape(name)
        except KeyError:
            near = [other for other in self.names() if other.endswith(name.rpartition(".layers.")[2])][:3]
            hint = f"; there are {', '.join(near)}" if near else f"; there are {len(self.names())} others"
            raise InvalidValue(f"{self.path}: expected the tensor {name!r}, found none{hint}") from None


def _from_folder(folder: Path) -> Checkpoint:
    path = file_in(folder, "config.json")
    if not path.is_file():
        raise InvalidValue(f"{folder}: expected config.json, found {_listing(folder)}")
    config = read_json(path)
    generation = file_in(folder, "generation_config.json")
    stored, quantization = Safetensors(folder), config.get("quantization_config")
    weights: Weights = stored
    if isinstance(quantization, dict):
        match quantization.get("quant_method"):
            case "ggml":
                weights = BlockWeights(folder, stored, quantization)
            case "mxfp4":
                weights = MicroscaledWeights(folder, stored)
            case _:
                weights = PackedWeights(stored, quantization)
    return Checkpoint(folder, config, read_json(generation) if generation.is_file() else {}, weights)


def _gguf_generation(model: GGUFModel) -> dict:
    metadata = model.file.metadata
    values = {key: metadata.get(f"general.sampling.{name}") for key, name in _SAMPLING.items()}
    ids = {key: model.config.get(key) for key in ("bos_token_id", "eos_token_id")}
    return {key: value for key, value in {**values, **ids}.items() if type(value) in (int, float)}


def _what(path: Path) -> str:
    return "a file of another kind" if path.exists() else "nothing"


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir())
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "no files"
