"""What activations of 8 bits cost a language model, beside llama.cpp: `python -m benchmarks.llm_accuracy`.

The trained model of examples/dictionary is written as GGUF files of 4 and 8 bits, which both read. Its own answers are
the texts. Logits after each token are compared with those of the same weights in float32, and with those of the model
before it was quantized: the mean of KL(reference || found) over the tokens, and how often the likeliest token is the
same. `llama_cpp` is the package llama-cpp-python; without it our figures stand alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oneir.llm import LLM
from oneir.llm.engine.runner import Piece
from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.runtime.loader import load_runner

FOLDER = Path(__file__).parents[1] / "examples" / "dictionary" / "model"
WORDS = "eye year house river king music bread winter garden iron mother school ship window horse night hand money"
FORMATS = {"q4_0": 2, "q8_0": 7}
"""The formats of weights, and llama.cpp's number of such files."""
PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
Logits = Callable[[Sequence[int]], np.ndarray]
"""The logits after each of some tokens, float32 (tokens, vocabulary)."""


def write_gguf(path: Path, folder: Path, form: str) -> None:
    """A Llama of a folder as a GGUF file, all matrices in one format."""
    import gguf

    checkpoint = Checkpoint.open(folder)
    config, kind = checkpoint.config, gguf.GGMLQuantizationType[form.upper()]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(FORMATS[form])
    writer.add_tokenizer_model("llama")  # llama.cpp wants a vocabulary; what it is given are numbers of tokens
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, config["vocab_size"]))])
    writer.add_token_scores([0.0] * config["vocab_size"])
    writer.add_token_types([2, 3, 3, *([1] * (config["vocab_size"] - 3))])

    def add(name: str, source: str) -> None:
        value = checkpoint.read(source).astype(np.float32)
        if ".attn_q." in name or ".attn_k." in name:  # there, neighbours turn together
            halves = value.reshape(-1, 2, config["head_dim"] // 2, value.shape[1])
            value = halves.swapaxes(1, 2).reshape(value.shape)
        if value.ndim == 1:
            writer.add_tensor(name, value)
        else:
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)

    add("token_embd.weight", "model.embed_tokens.weight")
    for i in range(config["num_hidden_layers"]):
        for source, name in PARTS.items():
            add(f"blk.{i}.{name}.weight", f"model.layers.{i}.{source}.weight")
    add("output_norm.weight", "model.norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ours(path: Path, **precision: Any) -> Logits:
    """Our logits of a file."""
    runner, _, _ = load_runner(path, max_batch_size=1, **precision)
    return lambda tokens: runner.run([Piece(tokens, 0, range(runner.num_pages), all_logits=True)])[0]


def llama_cpp_logits(path: Path) -> Logits:
    """Those of llama.cpp. Raises `ImportError`."""
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, logits_all=True, verbose=False)

    def logits(tokens: Sequence[int]) -> np.ndarray:
        model.reset()
        model.eval(list(tokens))
        return np.array(model.scores[: len(tokens)], np.float32)

    return logits


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Of each row, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(1, keepdims=True))


def compared(reference: Logits, found: Logits, texts: Sequence[Sequence[int]]) -> tuple[float, float]:
    """The mean of KL(reference || found) over all tokens, in nats, and how often both choose the same token."""
    divergences, same = [], []
    for tokens in texts:
        p, q = log_probabilities(reference(tokens)), log_probabilities(found(tokens))
        divergences.append((np.exp(p) * (p - q)).sum(1))
        same.append(p.argmax(1) == q.argmax(1))
    return float(np.concatenate(divergences).mean()), float(np.concatenate(same).mean())


def texts_of(folder: Path) -> list[list[int]]:
    """Questions and the model's own answers, as tokens."""
    llm = LLM(folder, "f32")
    questions = [[{"role": "user", "content": f"What is a {word}?"}] for word in WORDS.split()]
    found = [[*answer.prompt_token_ids, *answer.token_ids] for answer in llm.generate(questions, max_tokens=60)]
    llm.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=FORMATS, nargs="+", default=list(FORMATS))
    options = parser.parse_args()
    texts = texts_of(FOLDER)
    whole = ours(FOLDER, quantization="f32")
    print(f"{len(texts)} texts, {sum(map(len, texts))} tokens")
    with tempfile.TemporaryDirectory() as folder:
        for form in options.format:
            path = Path(folder) / f"{form}.gguf"
            write_gguf(path, FOLDER, form)
            models = {
                "float32 rows": ours(path, activations="float32"),
                "float32 rows, keys and values int8": ours(path, activations="float32", kv_dtype="int8"),
                "int8 rows": ours(path),
                "int8 rows, keys and values int8": ours(path, kv_dtype="int8"),
            }
            reference = models["float32 rows"]
            try:
                models["llama.cpp"] = llama_cpp_logits(path)
            except ImportError:
                print("llama_cpp is not installed")
            print(f"{form:<38}{'to the same weights':>24}{'to the unquantized':>24}")
            for name, found in models.items():
                figures = [compared(given, found, texts) for given in (reference, whole)]
                print(f"  {name:<36}" + "".join(f"{kl:14.2e}{same:10.2%}" for kl, same in figures))


if __name__ == "__main__":
    main()
