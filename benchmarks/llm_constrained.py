"""What answers of a given form cost: `python -m benchmarks.llm_constrained`.

A model of TinyLlama's shape with random weights (benchmarks.llm) gets a vocabulary of 32,000 tokens, byte pairs of the
sources of Python's library. Requests take turns: one writes freely, the next one JSON that a schema allows, with as
many tokens. Printed are milliseconds a step of both, and their ratio; the bar is 1.05.
"""

from __future__ import annotations

import argparse
import sysconfig
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import tokenizers

import oneir
from benchmarks.llm import MODELS, write_gguf
from benchmarks.measure import verdict
from oneir.llm.engine.engine import Engine
from oneir.llm.engine.sampling import SamplingParams
from oneir.llm.files.tokenizer import Tokenizer
from oneir.llm.runtime.loader import load_runner

BAR = 1.05
TEXT = {"type": "string", "maxLength": 60}
PERSON = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
        "state": {"enum": ["new", "known", None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 8},
        "address": {"type": "object", "properties": {"street": TEXT, "city": TEXT}, "required": ["street", "city"]},
    },
    "required": ["name", "age", "zip", "state", "tags", "address"],
    "additionalProperties": False,
}
SCHEMA = {"type": "array", "items": PERSON, "minItems": 1000}
"""Of more tokens than are asked for, so that both kinds of answers have as many."""


def vocabulary(path: Path, size: int) -> None:
    """Writes tokenizer.json: byte pairs of the sources of Python's library."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")) + sorted(
        Path(oneir.__file__).parent.rglob("*.py")
    )
    tokenizer.train([str(source) for source in sources], trainer)
    tokenizer.save(str(path))


def steps(engine: Engine, params: SamplingParams, requests: int) -> tuple[float, int]:
    """The seconds that steps behind the first one take for so many requests at once, and the steps."""
    made = engine.make([[5 + i] * 16 for i in range(requests)], params, lambda chunk: None)
    engine.submit(made)
    engine.step()
    count, begin = 0, time.perf_counter()
    while engine.step():
        count += 1
    assert all(request.finish_reason == "length" for request in made)
    return time.perf_counter() - begin, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64, help="of an answer (64)")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    oneir.runtime.set_num_threads(options.threads)
    shape = replace(MODELS["tinyllama"], layers=options.layers)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary(Path(folder) / "tokenizer.json", shape.vocab)
        tokenizer = Tokenizer.open(folder)
        model = Path(folder) / "model.gguf"
        write_gguf(model, shape, "q4_0")
        runner, _, _ = load_runner(model, context=16 + options.tokens, max_batch_size=8)
        engine = Engine(runner, tokenizer, max_batch_size=8, eos_ids=[2])
        for temperature in (0.0, 1.0):
            for requests in (1, 8):
                found: dict[str, list[float]] = {"free": [], "JSON": []}
                for turn in range(options.rounds + 1):
                    for kind, seconds in found.items():
                        schema = SCHEMA if kind == "JSON" else None
                        params = SamplingParams(
                            options.tokens, temperature, seed=turn, ignore_eos=True, json_schema=schema
                        )
                        spent, count = steps(engine, params, requests)
                        seconds += [spent / count] if turn else []
                free, ours = (sum(seconds) / options.rounds for seconds in found.values())
                compared = f"{1e3 * free:.2f} ms a step, JSON {1e3 * ours:.2f} = {ours / free:.3f} x"
                judged = verdict(ours / free, BAR, False)
                print(f"temperature {temperature:g}, {requests} at once: {compared}: {judged}", flush=True)


if __name__ == "__main__":
    main()
