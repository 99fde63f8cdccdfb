"""What a configuration says, checked before a model is made of it: files come from anywhere.

    facts = checked({"model_type": "llama", "hidden_size": 2048, "head_dim": None})
    facts["hidden_size"]          # a whole number, within limits
    "head_dim" in facts           # False: null says nothing

A name has one kind of value wherever it stands, at the top or among the parameters of rotary embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...runtime.error import InvalidValue


class _Kind(NamedTuple):
    """The values that an entry may have, and what they are called."""

    expected: str
    holds: Callable[[Any], bool]


def _whole(least: int, most: int) -> _Kind:
    return _Kind(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def _list_of(kind: _Kind) -> _Kind:
    return _Kind(f"a list, each {kind.expected}", lambda value: isinstance(value, list) and all(map(kind.holds, value)))


_SIZE = _whole(1, 1 << 20)
_COUNT = _whole(1, 1 << 10)
"""Of layers, heads and experts: for each of them something is made."""
_POSITIONS = _whole(1, (1 << 31) - 1)
_POSITIVE = _Kind("a number from 1e-30 to 1e30", lambda value: type(value) in (int, float) and 1e-30 <= value <= 1e30)
_FLAG = _Kind("true or false", lambda value: isinstance(value, int) and value in (0, 1))
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_OBJECT = _Kind("an object", lambda value: isinstance(value, dict))
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "moe_intermediate_size", "n_embd", "n_inner"), _SIZE),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head", "num_hidden_layers", "n_layer"), _COUNT),
    **dict.fromkeys(("num_experts", "num_local_experts", "num_experts_per_tok", "sliding_window_pattern"), _COUNT),
    **dict.fromkeys(("decoder_sparse_step", "type_vocab_size"), _COUNT),
    **dict.fromkeys(("max_position_embeddings", "original_max_position_embeddings", "n_positions"), _POSITIONS),
    **dict.fromkeys(("sliding_window", "query_pre_attn_scalar", "vocab_size"), _POSITIONS),
    "head_dim": _whole(2, 1 << 14),
    **dict.fromkeys(("max_window_layers", "pad_token_id"), _whole(-1, (1 << 31) - 1)),
    "mlp_only_layers": _list_of(_whole(0, 1 << 10)),
    **dict.fromkeys(
        ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "swiglu_alpha", "swiglu_limit"), _POSITIVE
    ),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), _POSITIVE),
    **dict.fromkeys(("rope_theta", "rope_local_base_freq", "factor", "low_freq_factor", "high_freq_factor"), _POSITIVE),
    **dict.fromkeys(("attention_factor", "beta_fast", "beta_slow"), _POSITIVE),
    **dict.fromkeys(("short_factor", "long_factor"), _list_of(_POSITIVE)),
    **dict.fromkeys(
        ("mscale", "mscale_all_dim"), _Kind("a number up to 1e30", lambda v: type(v) in (int, float) and 0 <= v <= 1e30)
    ),
    "partial_rotary_factor": _Kind("a number from 0 to 1", lambda v: type(v) in (int, float) and 0 <= v <= 1),
    **dict.fromkeys(("attention_bias", "mlp_bias", "is_decoder", "norm_topk_prob", "tie_word_embeddings"), _FLAG),
    **dict.fromkeys(("use_parallel_residual", "use_sliding_window", "truncate"), _FLAG),
    **dict.fromkeys(("model_type", "hidden_act", "hidden_activation", "activation_function"), _TEXT),
    **dict.fromkeys(("position_embedding_type", "rope_type", "type"), _TEXT),
    "layer_types": _list_of(_TEXT),
    **dict.fromkeys(("rope_parameters", "rope_scaling", "full_attention", "sliding_attention"), _OBJECT),
}
"""The entries that families read."""


def checked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that say something. Raises `InvalidValue` for one that families read and that is of another kind."""
    facts = {name: value for name, value in config.items() if value is not None}
    for name, value in facts.items():
        kind = _KINDS.get(name)
        if kind is not None and not kind.holds(value):
            found = repr(value)
            found = found if len(found) <= 80 else f"{found[:80]}..."
            raise InvalidValue(
                f"the configuration of the model: expected {name!r} to be {kind.expected}, found {found}"
            )
        if kind is _OBJECT:
            facts[name] = checked(value)
    return facts
