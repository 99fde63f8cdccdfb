"""Models that embed: vectors equal to those that transformers' states give, and what folders say of pooling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
import transformers
from devices import needs_opencl
from served import served
from small_decoders import with_quantized_weights

import oneir
from oneir.llm import LLM
from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.quantization import Precision
from oneir.llm.runtime.embedder import load_embedder, pooling_of
from oneir.llm.runtime.loader import load_runner
from oneir.runtime.device import Device
from oneir.runtime.error import InvalidValue, UnsupportedError

ENCODER = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
}
LENGTHS = (7, 1, 33, 100, 33)
MODULES = "sentence_transformers.models"


def saved(folder: Path, kind: str, auto: str = "AutoModel", **facts: Any) -> Any:
    """A model with random weights, saved as its users save theirs; in evaluation."""
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**ENCODER | facts)
    model = getattr(transformers, auto).from_config(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(
                torch.randn_like(value) * 0.2 + (value.ndim == 1 and "norm" in name.lower() and "weight" in name)
            )
    model.save_pretrained(folder)
    return model


def with_modules(folder: Path, *modules: str, **pooling: Any) -> None:
    """Writes what the package sentence-transformers writes."""
    places = {"Transformer": ""} | {name: f"{i + 1}_{name}" for i, name in enumerate(modules)}
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"{MODULES}.{name}"}
        for i, (name, path) in enumerate(places.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **pooling}))


def texts() -> list[list[int]]:
    rng = np.random.default_rng(1)
    return [rng.integers(3, ENCODER["vocab_size"], n).tolist() for n in LENGTHS]


def states(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens])).last_hidden_state[0].numpy()


def embedded(folder: Path, where: Device | None = None, **precision: Any) -> list[np.ndarray]:
    checkpoint = Checkpoint.open(folder)
    pooling = pooling_of(checkpoint)
    assert pooling is not None
    return load_embedder(checkpoint, pooling, Precision(**precision), None, where=where)[0].embed(texts())


def close(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-4) -> None:
    for vector, other in zip(found, expected, strict=True):
        assert np.abs(vector - other).max() <= tolerance * np.abs(other).max()


@pytest.mark.parametrize(
    ("kind", "auto", "facts"),
    [
        ("BertConfig", "AutoModel", {}),
        ("BertConfig", "AutoModelForMaskedLM", {"hidden_act": "gelu_new"}),
        ("RobertaConfig", "AutoModel", {"pad_token_id": 1}),
        ("XLMRobertaConfig", "AutoModelForMaskedLM", {"pad_token_id": 1, "type_vocab_size": 1}),
    ],
)
def test_an_encoder_without_modules_gives_means_of_length_1(kind: str, auto: str, facts: Any, tmp_path: Path) -> None:
    model = saved(tmp_path, kind, auto, **facts)
    means = [states(model.base_model, tokens).mean(0) for tokens in texts()]
    close(embedded(tmp_path), [mean / np.linalg.norm(mean) for mean in means])


def test_pooling_dense_and_normalization_of_modules(tmp_path: Path) -> None:
    model = saved(tmp_path, "BertConfig")
    with_modules(tmp_path, "Pooling", "Dense", "Normalize", pooling_mode_cls_token=True, pooling_mode_max_tokens=True)
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    (dense / "config.json").write_text(json.dumps({"activation_function": "torch.nn.modules.activation.Tanh"}))
    layer = torch.nn.Linear(128, 24)
    from safetensors.torch import save_file

    save_file(
        {f"linear.{name}": value.detach() for name, value in layer.named_parameters()}, dense / "model.safetensors"
    )
    expected = []
    for tokens in texts():
        found = states(model, tokens)
        pooled = torch.from_numpy(np.concatenate([found[0], found.max(0)]))
        expected.append(torch.nn.functional.normalize(torch.tanh(layer(pooled)), dim=0).detach().numpy())
    close(embedded(tmp_path), expected)


@pytest.mark.parametrize(
    ("mode", "pool"),
    [
        ("mean", lambda s: s.mean(0)),
        ("mean_sqrt_len_tokens", lambda s: s.sum(0) / len(s) ** 0.5),
        ("weightedmean", lambda s: np.average(s, 0, np.arange(1, len(s) + 1))),
        ("lasttoken", lambda s: s[-1]),
    ],
)
def test_a_decoder_embeds_where_its_folder_says_so(mode: str, pool: Any, tmp_path: Path) -> None:
    """Its files lack the prefix of names and the head, as those of Qwen3's embedding models do."""
    more: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 900}
    model = saved(tmp_path, "Qwen3Config", **more)
    with_modules(tmp_path, "Pooling", pooling_mode=mode)
    close(embedded(tmp_path), [pool(states(model, tokens)) for tokens in texts()])
    checkpoint = Checkpoint.open(tmp_path)
    long = np.random.default_rng(2).integers(3, 300, 700).tolist()  # more than a step has
    pooling = pooling_of(checkpoint)
    assert pooling is not None
    (vector,) = load_embedder(checkpoint, pooling, Precision(), None)[0].embed([long])
    close([vector], [pool(states(model, long))])


def test_weights_of_8_bits(tmp_path: Path) -> None:
    model = saved(tmp_path, "BertConfig")
    means = [states(model, tokens).mean(0) for tokens in texts()]
    found = embedded(tmp_path, quantization="q8_0")
    cosines = [f @ m / np.linalg.norm(m) for f, m in zip(found, means, strict=True)]
    assert 0.999 < min(cosines) < 0.99999999


@needs_opencl
@pytest.mark.parametrize(
    ("kind", "facts", "precision"),
    [
        ("BertConfig", {}, {}),
        ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 32}, {"quantization": "q8_0", "kv_dtype": "float32"}),
    ],
)
def test_vectors_of_devices(kind: str, facts: dict[str, Any], precision: dict[str, str], tmp_path: Path) -> None:
    """An encoder, and a decoder with the weights that digits stand for."""
    model = saved(tmp_path, kind, **facts)
    with_modules(tmp_path, "Pooling", pooling_mode_mean_tokens=True)
    if precision:
        model = with_quantized_weights(model, "Q8_0")
    found = embedded(tmp_path, oneir.opencl(), **precision)
    close(found, [states(model, tokens).mean(0) for tokens in texts()])
    with pytest.raises(UnsupportedError, match="activations='int8' is for processors; leave it out for a model on"):
        embedded(tmp_path, oneir.opencl(), activations="int8")


def test_what_users_call(tmp_path: Path) -> None:
    model = saved(tmp_path, "BertConfig")
    llm = LLM(tmp_path)
    expected = [vector / np.linalg.norm(vector) for vector in (states(model, t).mean(0) for t in texts())]
    close([llm.embed(texts()[0])], expected[:1])
    close(llm.embed(texts()), expected)
    with pytest.raises(UnsupportedError, match="this model gives embeddings; it generates no text"):
        llm.generate([5, 6])
    with pytest.raises(InvalidValue, match="context has room for 130 tokens; the prompt has 131"):
        llm.embed([5] * 131)
    with served(llm.engine) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="-") as client:
        answers = client.embeddings.create(model="fake", input=texts())
        close([np.array(answer.embedding) for answer in answers.data], expected)
        assert answers.usage.prompt_tokens == sum(LENGTHS)
        with pytest.raises(openai.UnprocessableEntityError, match="it generates no text"):
            client.completions.create(model="fake", prompt=[5, 6])


def test_what_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "BertConfig")
    with pytest.raises(UnsupportedError, match="of the type 'bert' give embeddings, and no text"):
        load_runner(tmp_path)
    with pytest.raises(InvalidValue, match="an encoder has no cache, found 'int8'"):
        embedded(tmp_path, kv_dtype="int8")
    with_modules(tmp_path, "Pooling", pooling_mode="attention")
    with pytest.raises(UnsupportedError, match=r"pooled by cls, lasttoken, .*; found attention"):
        embedded(tmp_path)
    with_modules(tmp_path, "Pooling", "LSTM", pooling_mode="mean")
    with pytest.raises(UnsupportedError, match=r"found sentence_transformers.models.LSTM in '2_LSTM'"):
        embedded(tmp_path)
    (tmp_path / "modules.json").write_text('[{"path": "../../etc", "type": "a.Pooling"}]')
    with pytest.raises(InvalidValue, match="expected the name of a file in this folder"):
        embedded(tmp_path)
    (tmp_path / "modules.json").write_text('{"path": ""}')
    with pytest.raises(InvalidValue, match="expected a JSON array, found dict"):
        embedded(tmp_path)
