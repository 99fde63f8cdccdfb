"""A model in a GGUF file, told as Hugging Face tells it: configuration, names of tensors, layout of their rows.

What llama.cpp's converter changed is changed back: the rows of q and k of the architecture `llama`, where neighbours
are rotated together and not halves; the 1 that is added to Gemma's norms; experts in one tensor; frequencies of rotary
embeddings in place of their parameters. Source: llama.cpp's `convert_hf_to_gguf.py`, `gguf-py/gguf/tensor_mapping.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue, UnsupportedError
from .blocks import QuantizedTensor, block_format, dequantize
from .gguf import GGUFFile

_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SANDWICH = {  # norms before and after, of Gemma 2 and 3
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_QWEN_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
_MIXTRAL_EXPERTS = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_MOST_EXPERTS = 1 << 12
_REQUIRED = object()
_ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class _Family(NamedTuple):
    """What an architecture of llama.cpp is to Hugging Face."""

    architecture: str
    model_type: str
    layer: Mapping[str, str] = MappingProxyType({})
    """Names of tensors in a layer where they differ from `_LAYER`."""
    permuted: bool = False
    norms_plus_one: bool = False


_FAMILIES = {
    "llama": _Family("LlamaForCausalLM", "llama", permuted=True),
    "qwen2": _Family("Qwen2ForCausalLM", "qwen2"),
    "qwen3": _Family("Qwen3ForCausalLM", "qwen3"),
    "qwen3moe": _Family("Qwen3MoeForCausalLM", "qwen3_moe", _QWEN_EXPERTS),
    "gemma": _Family("GemmaForCausalLM", "gemma", norms_plus_one=True),
    "gemma2": _Family("Gemma2ForCausalLM", "gemma2", _SANDWICH, norms_plus_one=True),
    "gemma3": _Family("Gemma3ForCausalLM", "gemma3_text", _SANDWICH, norms_plus_one=True),
    "phi3": _Family("Phi3ForCausalLM", "phi3", {"ffn_up": "mlp.gate_up_proj"}),
}
_MIXTRAL = _Family("MixtralForCausalLM", "mixtral", _MIXTRAL_EXPERTS, permuted=True)


class _Place(NamedTuple):
    """Where in the file a tensor of Hugging Face's name is."""

    tensor: str
    expert: int | None
    """The index into the first extent of a tensor that holds all experts."""
    heads: int
    """Heads whose rows are permuted, or 0."""
    plus_one: bool


class GGUFModel:
    """Configuration and weights of a GGUF file.

    Raises `InvalidValue` for metadata that are missing or wrong, `UnsupportedError` for an architecture that is not
    known, a tensor that the architecture should not have, and a file that is one of several parts.
    """

    def __init__(self, file: GGUFFile):
        self.file = file
        name = self._metadata("general.architecture", str)
        if name not in _FAMILIES:
            raise UnsupportedError(f"{file.path}: the architecture {name!r} is not known, only {', '.join(_FAMILIES)}")
        if file.metadata.get("split.count") not in (None, 0, 1):
            raise UnsupportedError(f"{file.path} is one part of several; join them: llama-gguf-split --merge")
        self.name = name
        self.experts = self._value("expert_count", int, 0)
        if not 0 <= self.experts <= _MOST_EXPERTS:
            raise InvalidValue(f"{file.path}: expected at most {_MOST_EXPERTS} experts, found {self.experts}")
        self.family = _MIXTRAL if name == "llama" and self.experts else _FAMILIES[name]
        self.config = self._config()
        self._places = self._all_places()

    def names(self) -> list[str]:
        """The names, in the order of the file."""
        return [*self._places]

    def tensor(self, name: str) -> str:
        """What the file calls the tensor that has this one, alone or with those of other experts."""
        return self._places[name].tensor

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; `KeyError` for an unknown one."""
        place = self._places[name]
        return self.file.tensors[place.tensor].shape[place.expert is not None :]

    def read(self, name: str) -> np.ndarray:
        """A tensor as it is stored, a view of the file where rows need not be moved; float32 of what is quantized.

        Raises `KeyError` for an unknown name, `UnsupportedError` for a format that is not read.
        """
        place = self._places[name]
        form = self.file.tensors[place.tensor].format
        data, shape = self._rows(name), self.shape(name)
        dtype = block_format(form).dtype
        values = dequantize(data, form) if dtype is None else data.view(numpy_dtype(dtype))
        values = values.reshape(shape)
        return values - values.dtype.type(1) if place.plus_one else values

    def format(self, name: str) -> str:
        """GGML's name of a tensor's format. `KeyError` for an unknown name."""
        return self.file.tensors[self._places[name].tensor].format

    def quantized(self, name: str) -> QuantizedTensor | None:
        """The blocks of a tensor, or None of one that is stored in a plain dtype. `KeyError` for an unknown name."""
        form = self.file.tensors[self._places[name].tensor].format
        if block_format(form).dtype is not None:
            return None
        return QuantizedTensor(form, self.shape(name), self._rows(name))

    def _rows(self, name: str) -> np.ndarray:
        """The bytes of a tensor, its rows in Hugging Face's order; rows are whole blocks, so they move as they are."""
        place, shape = self._places[name], self.shape(name)
        tensor = self.file.tensors[place.tensor]
        block_format(tensor.format)
        data = tensor.data
        if place.expert is not None:
            data = data.reshape(tensor.shape[0], -1)[place.expert]
        if place.heads:
            # Neighbours of a head become its halves.
            data = data.reshape(place.heads, shape[0] // place.heads // 2, 2, -1).swapaxes(1, 2).reshape(-1)
        return data

    def _all_places(self) -> dict[str, _Place]:
        layer = {**_LAYER, **self.family.layer}
        places: dict[str, _Place] = {}
        for tensor, (shape, _, _) in self.file.tensors.items():
            match = re.fullmatch(r"blk\.(0|[1-9]\d{0,5})\.(\w+)\.(weight|bias)", tensor)
            if match and match[2] in layer and int(match[1]) < self.config["num_hidden_layers"]:
                name = f"model.layers.{match[1]}.{layer[match[2]]}.{match[3]}"
            elif (top := tensor.removesuffix(".weight")) != tensor and top in _TOP:
                name = f"{_TOP[top]}.weight"
            elif tensor in _ROPE_TENSORS or tensor.endswith("attn_rot_embd.weight"):
                continue
            else:
                raise UnsupportedError(f"{self.file.path}: the tensor {tensor!r} is not known of {self.name} models")
            plus_one = self.family.norms_plus_one and tensor.endswith("norm.weight")
            if "{}" not in name:
                heads = self._permuted_heads(tensor, shape, match[2] if match else "")
                places[name] = _Place(tensor, None, heads, plus_one)
            elif shape[:1] == (self.experts,):
                places |= {name.format(expert): _Place(tensor, expert, 0, False) for expert in range(self.experts)}
            else:
                raise InvalidValue(f"{self.file.path}: expected {self.experts} experts in {tensor!r}, found {shape}")
        return places

    def _permuted_heads(self, tensor: str, shape: tuple[int, ...], part: str) -> int:
        counts = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
        if not self.family.permuted or part not in counts:
            return 0
        heads = self.config[counts[part]]
        if not shape or shape[0] % (2 * heads):
            raise InvalidValue(f"{self.file.path}: expected rows of {heads} even heads in {tensor!r}, found {shape}")
        return heads

    def _config(self) -> dict:
        """What `config.json` would say."""
        hidden, layers = self._positive("embedding_length"), self._positive("block_count")
        if layers > len(self.file.tensors):
            raise InvalidValue(f"{self.file.path}: {layers} layers in {len(self.file.tensors)} tensors")
        heads = self._positive("attention.head_count")
        head_dim = self._positive("attention.key_length", hidden // heads)
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise InvalidValue(f"{self.file.path}: expected a matrix token_embd.weight, found {embedding}")
        config = {
            "architectures": [self.family.architecture],
            "model_type": self.family.model_type,
            "hidden_size": hidden,
            "intermediate_size": self._positive("feed_forward_length"),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self._positive("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": embedding.shape[0],
            "max_position_embeddings": self._positive("context_length"),
            "rms_norm_eps": self._value("attention.layer_norm_rms_epsilon", float),
            "rope_theta": self._value("rope.freq_base", float, 10000.0),
            "rope_scaling": self._rope_scaling(head_dim),
            "tie_word_embeddings": "output.weight" not in self.file.tensors,
            "attention_bias": "blk.0.attn_q.bias" in self.file.tensors,
            "hidden_act": "silu",
        }
        if config["rope_scaling"] and "original_max_position_embeddings" in config["rope_scaling"]:
            # Phi-3's configuration has it here, and prefers it.
            config["original_max_position_embeddings"] = config["rope_scaling"]["original_max_position_embeddings"]
        rotated = self._positive("rope.dimension_count", head_dim)
        if rotated != head_dim:
            config["partial_rotary_factor"] = rotated / head_dim
        window = self._value("attention.sliding_window", int, 0)
        if window:
            config["sliding_window"] = window
        for key, kind in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
            token = self.file.metadata.get(f"tokenizer.ggml.{kind}_token_id")
            if type(token) is int:
                config[f"{key}_token_id"] = token
        return config | self._gemma(layers, hidden, heads, head_dim) | self._moe()

    def _gemma(self, layers: int, hidden: int, heads: int, head_dim: int) -> dict:
        """What Gemma has beyond others. llama.cpp knows it by the architecture, and the largest by their layers."""
        if self.name not in ("gemma", "gemma2", "gemma3"):
            return {}
        config: dict = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
        if self.name == "gemma":
            return config
        largest, period = (46, 2) if self.name == "gemma2" else (62, 6)
        config["query_pre_attn_scalar"] = hidden // heads if layers == largest else head_dim
        period = self._positive("attention.sliding_window_pattern", period)
        kinds = ["full_attention" if (layer + 1) % period == 0 else "sliding_attention" for layer in range(layers)]
        config["layer_types"] = kinds
        config["sliding_window"] = self._positive("attention.sliding_window", 4096 if self.name == "gemma2" else None)
        capped = (50.0, 30.0) if self.name == "gemma2" else (None, None)
        for key, default in zip(("attn_logit_softcapping", "final_logit_softcapping"), capped, strict=True):
            config[key] = self._value(key, float, default)
        if self.name == "gemma3":
            config["rope_local_base_freq"] = self._value("rope.freq_base_swa", float, 10000.0)
        return config

    def _moe(self) -> dict:
        if not self.experts:
            return {}
        config: dict = {"num_experts_per_tok": self._positive("expert_used_count")}
        if self.family is _MIXTRAL:
            return config | {"num_local_experts": self.experts}
        config["num_experts"] = self.experts
        config["moe_intermediate_size"] = self._positive("expert_feed_forward_length")
        return config | {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}

    def _rope_scaling(self, head_dim: int) -> dict | None:
        original = self._value("rope.scaling.original_context_length", int, self._positive("context_length"))
        factors = {name: self._factors(f"rope_{name}.weight", head_dim) for name in ("freqs", "factors_long")}
        if factors["freqs"] is not None:
            # Llama 3.1's scaling, of which the file holds what it does to each frequency; longrope takes such factors.
            both = factors["freqs"]
            return {
                "rope_type": "longrope",
                "short_factor": both,
                "long_factor": both,
                "attention_factor": 1.0,
                "original_max_position_embeddings": original,
            }
        if factors["factors_long"] is not None:
            scaling: dict = {
                "rope_type": "longrope",
                "short_factor": self._factors("rope_factors_short.weight", head_dim),
                "long_factor": factors["factors_long"],
                "original_max_position_embeddings": original,
            }
            attention = self._value("rope.scaling.attn_factor", float, None)
            return scaling if attention is None else scaling | {"attention_factor": attention}
        kind = self._value("rope.scaling.type", str, "none")
        if kind == "none":
            return None
        if kind not in ("linear", "yarn"):
            raise UnsupportedError(f"{self.file.path}: {self.name}.rope.scaling.type {kind!r} is not known")
        scaling = {"rope_type": kind, "factor": self._value("rope.scaling.factor", float)}
        if kind == "yarn":
            scaling["original_max_position_embeddings"] = original
            for key in ("beta_fast", "beta_slow"):
                value = self._value(f"rope.scaling.yarn_{key}", float, None)
                if value is not None:
                    scaling[key] = value
        return scaling

    def _factors(self, tensor: str, head_dim: int) -> list[float] | None:
        """Factors of the frequencies of a rotary embedding, if the file has them."""
        stored = self.file.tensors.get(tensor)
        if stored is None:
            return None
        if stored.format != "F32" or len(stored.shape) != 1 or stored.shape[0] > head_dim // 2:
            raise InvalidValue(f"{self.file.path}: expected {head_dim // 2} float32 in {tensor!r}, found {stored}")
        return dequantize(stored.data, stored.format).tolist()

    def _positive(self, key: str, default: int | None = None) -> int:
        """A count of the architecture, which must be there unless it has a default."""
        value = self._value(key, int, _REQUIRED if default is None else default)
        if not 0 < value < 1 << 31:
            raise InvalidValue(f"{self.file.path}: expected a positive {self.name}.{key}, found {value}")
        return value

    def _value(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """A value of the architecture; of a list of values, one a layer, the one that all of them are."""
        key = f"{self.name}.{key}"
        value = self.file.metadata.get(key)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            return kind(value[0])
        return self._metadata(key, kind) if default is _REQUIRED or value is not None else default

    def _metadata(self, key: str, kind: type) -> Any:
        """A value of the metadata, of a certain type."""
        value = self.file.metadata.get(key)
        if type(value) is not kind:
            found = "none" if value is None else type(value).__name__
            raise InvalidValue(f"{self.file.path}: expected {key} as {kind.__name__} in the metadata, found {found}")
        return value
