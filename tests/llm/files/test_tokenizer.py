"""Tokenizers of folders and GGUF files, made here: the ids and texts of transformers, and of SentencePiece's rule."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import transformers
from hostile import COPIES, json_mutations, mutations, outcomes_alone, refused, survives, text_mutations, written
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from oneir.llm.files.tokenizer import Tokenizer
from oneir.llm.files.tokenizer_parts import NoTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's 12345 o'clock, isn't it?",
    "Der schnelle Fuchs springt über den faulen Hund; größer, schöner, älter!",
    "def main():\n    print('hello, world')\n    return 0\n",
    "我能吞下玻璃而不伤身体。 🙂🙂 naïve café",
] * 3
TEXTS = [
    *CORPUS[:4],
    "",
    " ",
    "a",
    "  two  spaces   and\ttabs\n\n\nlines \r\n end ",
    "IT'S WE'LL they'Re 0123456789 ½ ² ٣",
    "ÅÄÖ e\u0301 ﬁ \u00a0 \u200b x\u0000y",
    "🙂👨‍👩‍👧‍👦🇩🇪 日本語テキスト ไทย",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant",
    "mixed<s>markers</s>in <0x41> text▁here",
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CONTROLS = ["<|begin|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def byte_pairs(kind: str) -> tokenizers.Tokenizer:
    """A tokenizer of bytes, as Llama 3, Qwen 2 or GPT-2 have it."""
    backend = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    if kind == "gpt-2":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        split = pre_tokenizers.Split(tokenizers.Regex({"llama-bpe": LLAMA3, "qwen2": QWEN2}[kind]), "isolated")
        in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, in_bytes])
    if kind == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    backend.add_tokens([AddedToken("<tool_call>", normalized=False)])
    begin = backend.token_to_id("<|begin|>")
    backend.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    return backend


def pieces() -> tokenizers.Tokenizer:
    """SentencePiece's pieces with bytes for what is none, as Llama 2 and Mistral have them."""
    learner = tokenizers.Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    learner.train_from_iterator(CORPUS[:2], trainers.BpeTrainer(vocab_size=160, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    merges = [tuple(merge) for merge in learned["merges"]]
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    for piece in learned["vocab"]:
        vocabulary.setdefault(piece, len(vocabulary))
    model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = learner.normalizer
    replace, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    backend.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip])
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return backend


KINDS = {
    "llama-bpe": {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"},
    "qwen2": {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "add_bos_token": False},
    "gpt-2": {"bos_token": "<|begin|>", "eos_token": "<|begin|>", "add_bos_token": False},
    "llama": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
}


def save(kind: str, folder) -> transformers.PreTrainedTokenizerFast:
    """Has transformers save a tokenizer of a kind, and read it."""
    backend = pieces() if kind == "llama" else byte_pairs(kind)
    original = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=TEMPLATE, **KINDS[kind])
    original.save_pretrained(folder)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    """A kind, the folder that transformers saves of it, and transformers' tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, save(request.param, folder)


@pytest.fixture(scope="module")
def llama3(tmp_path_factory):
    """The folder of byte pairs as Llama 3 has them."""
    folder = tmp_path_factory.mktemp("llama3")
    save("llama-bpe", folder)
    return folder


def gguf_of(kind: str, folder, path, **changes):
    """The tokenizer of a folder as llama.cpp's converter stores it; changes replace metadata, None leaves one out."""
    content = json.loads((folder / "tokenizer.json").read_text())
    added = {entry["id"]: entry for entry in content["added_tokens"]}
    by_id = {index: text for text, index in content["model"]["vocab"].items()}
    by_id |= {index: entry["content"] for index, entry in added.items()}
    tokens = [by_id[index] for index in range(len(by_id))]
    types = [1] * len(tokens)
    for index, entry in added.items():
        types[index] = 3 if entry["special"] else 4
    metadata = {"model": "llama" if kind == "llama" else "gpt2", "tokens": tokens, "token_type": types}
    if kind == "llama":
        first = tokens.index("<0xFF>") + 1
        types[0], types[3:first] = 2, [6] * 256
        scores = [0.0] * first + [-float(rank) for rank in range(len(tokens) - first)]
        metadata |= {"scores": scores, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    else:
        metadata |= {"pre": kind, "merges": [" ".join(merge) for merge in content["model"]["merges"]]}
        metadata |= {"bos_token_id": tokens.index("<|begin|>"), "eos_token_id": tokens.index("<|im_end|>")}
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**metadata, **changes}.items():
        if value is not None:
            writer.add_key_value(f"tokenizer.ggml.{key}", value, *value_type(value))
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def value_type(value):
    """The types that llama.cpp expects: it reads the types of tokens as int32 only."""
    kinds = {str: "STRING", int: "UINT32", bool: "BOOL", float: "FLOAT32", list: "ARRAY"}
    inner = None
    if isinstance(value, list):
        inner = gguf.GGUFValueType["INT32" if type(value[0]) is int else kinds[type(value[0])]]
    return gguf.GGUFValueType[kinds[type(value)]], inner


def test_a_folder_has_the_ids_and_texts_of_transformers(made):
    _, folder, reference = made
    tokenizer = Tokenizer.open(folder)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == reference.encode(text), text
        assert tokenizer.encode(text, add_special_tokens=False) == reference.encode(text, add_special_tokens=False)
        for skip in (True, False):
            assert tokenizer.decode(ids, skip) == reference.decode(ids, skip_special_tokens=skip)
    assert tokenizer.size == len(reference) and tokenizer.bos_id == reference.bos_token_id
    assert tokenizer.eos_ids == {reference.eos_token_id}
    assert [token for token in range(tokenizer.size) if tokenizer.is_special(token)] == sorted(
        token for token, entry in reference.added_tokens_decoder.items() if entry.special
    )


def test_a_gguf_file_has_the_ids_and_texts_of_the_folder(made, tmp_path):
    kind, folder, reference = made
    tokenizer = Tokenizer.open(gguf_of(kind, folder, tmp_path / "m.gguf"))
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == reference.encode(text, add_special_tokens=False), text
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)
    begins = kind in ("llama", "llama-bpe")
    assert tokenizer.encode("x") == [tokenizer.bos_id] * begins + tokenizer.encode("x", False)
    assert tokenizer.size == len(reference)
    assert tokenizer.eos_ids == {tokenizer.token_id("</s>" if kind == "llama" else "<|im_end|>")}


def by_score(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's rule: of all neighbours that make a piece, those with the best score are joined first."""
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [(scores.get(symbols[i] + symbols[i + 1]), -i) for i in range(len(symbols) - 1)]
        known = [pair for pair in joined if pair[0] is not None]
        if not known:
            return symbols
        place = -max(known)[1]
        symbols[place : place + 2] = ["".join(symbols[place : place + 2])]


def test_pieces_are_joined_by_their_scores(tmp_path):
    """Scores at random, so that the order of the file says nothing."""
    folder = tmp_path / "f"
    backend = pieces()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **KINDS["llama"]).save_pretrained(folder)
    count, rng = backend.get_vocab_size(), np.random.default_rng(0)
    scores = [0.0] * 259 + (-rng.permutation(count - 259).astype(float)).tolist()
    tokenizer = Tokenizer.open(gguf_of("llama", folder, tmp_path / "m.gguf", scores=scores))
    of_piece = {str(backend.id_to_token(index)): scores[index] for index in range(259, count)}
    for text in (
        "the quick brown fox",
        "isn't it over",
        "Der schnelle Fuchs springt",
        "größer schöner",
        "lazy lazy dog",
    ):
        got = [tokenizer.backend.id_to_token(token) for token in tokenizer.encode(text, False)]
        assert got == by_score(text, of_piece)


def test_what_a_gguf_file_says_of_spaces_and_ends(made, tmp_path):
    kind, folder, _ = made
    changes = {"add_space_prefix": False, "add_bos_token": False, "add_eos_token": True, "eot_token_id": 0}
    tokenizer = Tokenizer.open(gguf_of(kind, folder, tmp_path / "m.gguf", **changes))
    ids = tokenizer.encode("quick")
    assert tokenizer.decode(ids) == "quick" and not str(tokenizer.backend.id_to_token(ids[0])).startswith("▁")
    assert ids[-1] in tokenizer.eos_ids and 0 in tokenizer.eos_ids and tokenizer.bos_id not in ids


@pytest.mark.parametrize("pre", ["default", "smollm", "tekken", "gpt-4o", "dbrx", "qwen2"])
def test_no_split_loses_a_byte(pre, llama3, tmp_path):
    tokenizer = Tokenizer.open(gguf_of("llama-bpe", llama3, tmp_path / "m.gguf", pre=pre))
    for text in TEXTS:
        expected = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text, False), skip_special_tokens=False) == expected


def test_splits_are_those_of_the_published_tokenizers(llama3, tmp_path):
    expected = {
        "smollm": ["I", " said", " ", "1", "2", "3", ",", " HELLOWorld", "'s"],
        "gpt-4o": ["I", " said", " ", "123", ",", " HELLOWorld's"],
        "tekken": ["I", " said", " ", "1", "2", "3", ",", " HELLOWorld", "'s"],
    }
    for pre, words in expected.items():
        backend = Tokenizer.open(gguf_of("llama-bpe", llama3, tmp_path / f"{pre}.gguf", pre=pre)).backend
        split = backend.pre_tokenizer.pre_tokenize_str("I said 123, HELLOWorld's")
        assert [word.replace("Ġ", " ") for word, _ in split] == words, pre


def test_a_text_comes_in_whole_characters(made):
    kind, folder, _ = made
    tokenizer = Tokenizer.open(folder)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        stream, pieces = tokenizer.stream(), []
        for token in ids:
            pieces.append(stream.add(token))
            assert "\N{REPLACEMENT CHARACTER}" not in pieces[-1]
        assert "".join([*pieces, stream.finish()]) == tokenizer.decode(ids)
    # Tokens that nobody would write. Of bytes in disorder, the decoder of pieces makes something else if it has all.
    rng, first = np.random.default_rng(0), 259 if kind == "llama" else 0
    for _ in range(50):
        ids = rng.integers(first, tokenizer.size, 40).tolist()
        stream = tokenizer.stream()
        text = "".join([*map(stream.add, ids), stream.finish()])
        assert text.replace("\ufffd", "") == tokenizer.decode(ids).replace("\ufffd", "")


def test_a_stream_shows_what_is_certain_and_no_more(made):
    _, folder, _ = made
    tokenizer = Tokenizer.open(folder)
    letter, *parts, end = tokenizer.encode("a𐍈b", False)[-6:]  # no vocabulary has it, so a token a byte
    stream = tokenizer.stream()
    assert [stream.add(token) for token in (letter, *parts, end)] == ["a", "", "", "", "𐍈", "b"]
    stream = tokenizer.stream()
    assert [stream.add(token) for token in parts[:3]] == [""] * 3
    assert "\ufffd" in stream.finish() and stream.finish() == ""
    # Bytes that cannot become a character wait for three more, no longer.
    stream = tokenizer.stream()
    assert [stream.add(parts[-1]) for _ in range(5)] == ["", "", "", "\ufffd", "\ufffd"]


def test_messages_get_no_second_begin(made):
    kind, folder, reference = made
    tokenizer = Tokenizer.open(folder)
    messages = [
        {"role": "user", "content": "Hi <|im_end|>", "tool_calls": None},
        {"role": "assistant", "content": "🙂"},
    ]
    plain = [{key: message[key] for key in ("role", "content")} for message in messages]
    expected = reference.apply_chat_template(plain, tokenize=False)
    assert tokenizer.apply_chat_template(messages) == expected
    ids = tokenizer.encode_chat(messages)
    assert ids == reference.encode(expected, add_special_tokens=False)
    if kind != "qwen2":
        assert [id for id in ids if id == tokenizer.bos_id] == ids[:1]
        assert tokenizer.encode(expected) == ids  # who encodes the text as any other gets no second one either


def test_templates_by_name(llama3, tmp_path):
    written(tmp_path / "tokenizer.json", (llama3 / "tokenizer.json").read_bytes())
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]
    written(tmp_path / "tokenizer_config.json", json.dumps({"chat_template": named}))
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.apply_chat_template([]) == "plain" and tokenizer.apply_chat_template([], [{}]) == "1 tools"
    written(tmp_path / "chat_template.jinja", "{{ bos_token }}{{ kind }}")
    assert Tokenizer.open(tmp_path).apply_chat_template([], kind="x") == "x"
    no_messages: Any = ["Hi"]
    refused("expected messages such as .* found 'Hi'", lambda: tokenizer.encode_chat(no_messages))


def test_ends_are_those_of_all_configurations(llama3, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        written(tmp_path / name, (llama3 / name).read_bytes())
    (own,) = Tokenizer.open(tmp_path).eos_ids
    written(tmp_path / "config.json", json.dumps({"eos_token_id": 7}))
    assert Tokenizer.open(tmp_path).eos_ids == {own, 7}
    written(tmp_path / "generation_config.json", json.dumps({"eos_token_id": [8, 9]}))
    assert Tokenizer.open(tmp_path).eos_ids == {own, 8, 9}


def test_a_model_without_a_tokenizer_says_so(tmp_path, llama3):
    with pytest.raises(NoTokenizer, match=r"expected tokenizer\.json, found none; use token ids"):
        Tokenizer.open(tmp_path)
    written(tmp_path / "tokenizer.model", b"")
    with pytest.raises(NoTokenizer, match=r"found none, only tokenizer\.model; write it with transformers"):
        Tokenizer.open(tmp_path)
    with pytest.raises(NoTokenizer, match=r"expected the metadata tokenizer\.ggml\.model, found none; use token ids"):
        Tokenizer.open(gguf_of("llama-bpe", llama3, tmp_path / "n.gguf", model=None))
    written(tmp_path / "tokenizer.json", (llama3 / "tokenizer.json").read_bytes())
    refused("the model has no chat template", lambda: Tokenizer.open(tmp_path).encode_chat([]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, "tokenizers of kind 'bert' are not known, only llama and gpt2"),
        ({"model": "gpt2", "pre": "odd"}, "the pre-tokenizer 'odd' is not known, only dbrx, deepseek-r1-qwen, default"),
        ({"tokens": None}, "expected strings as tokenizer.ggml.tokens, found None"),
        ({"tokens": ["a", "b", "a"]}, "expected tokens of which no two are equal, found 1 doubles"),
        ({"token_type": [1, 1]}, "numbers as tokenizer.ggml.token_type"),
        ({"model": "llama", "scores": [float("nan")] * 1000}, "expected scores of tokens that are numbers, found NaN"),
        ({"model": "gpt2", "pre": "gpt-2", "merges": ["x y z"]}, "the tokenizer failed"),
        ({"model": "gpt2", "pre": "gpt-2", "merges": None}, "expected strings as tokenizer.ggml.merges, found None"),
    ],
)
def test_vocabularies_that_are_refused(changes, message, llama3, tmp_path):
    path = gguf_of("llama-bpe", llama3, tmp_path / "m.gguf", **changes)
    refused(message, lambda: Tokenizer.open(path))


def test_texts_and_tokens_that_are_refused(llama3):
    tokenizer = Tokenizer.open(llama3)
    refused("the text: the tokenizer failed", lambda: tokenizer.encode("\ud800"))
    refused("the tokens: the tokenizer failed", lambda: tokenizer.decode([-1]))
    assert tokenizer.decode([10**6]) == ""


def test_an_expression_that_searches_for_ever_is_ended(tmp_path):
    backend = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    written(tmp_path / "tokenizer.json", backend.to_str())
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.encode("aa") == [0, 0]
    refused("the text: the tokenizer failed: .*retry-limit", lambda: tokenizer.encode("a" * 400 + "b"))


@pytest.mark.parametrize("pattern", ["a", tokenizers.Regex("a|^")])
def test_replacements_that_would_fill_the_memory_are_refused(pattern, tmp_path):
    backend = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    backend.normalizer = normalizers.Sequence([normalizers.Sequence([normalizers.Replace(pattern, "aa")] * 40)])
    written(tmp_path / "tokenizer.json", backend.to_str())
    refused("its replacements can make texts more than 256 times as long", lambda: Tokenizer.open(tmp_path))
    backend.normalizer = None
    backend.decoder = decoders.Sequence([decoders.Replace(pattern, "aa")] * 40)
    written(tmp_path / "tokenizer.json", backend.to_str())
    refused("its replacements can make texts more than 256 times as long", lambda: Tokenizer.open(tmp_path))
    backend.decoder = None
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.ByteLevel()] * 40)
    written(tmp_path / "tokenizer.json", backend.to_str())
    refused("its replacements can make texts more than 256 times as long", lambda: Tokenizer.open(tmp_path))


def test_no_file_outside_of_the_folder_is_read(llama3, tmp_path):
    os.symlink(llama3 / "tokenizer.json", tmp_path / "tokenizer.json")
    refused("tokenizer.json is a link to .*, which is outside of", lambda: Tokenizer.open(tmp_path))


def test_importing_takes_no_optional_package():
    script = "import oneir, sys; assert not [m for m in sys.modules if m.startswith('oneir.llm')]\n"
    script += "import oneir.llm.files.checkpoint, oneir.llm.files.tokenizer\n"
    script += "print([m for m in ('tokenizers', 'jinja2', 'torch', 'transformers', 'gguf') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_mutated_tokenizers_are_read_or_refused(made, tmp_path):
    _, folder, _ = made
    content = (folder / "tokenizer.json").read_text()
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tail = len(content) // 2
    pieces = ['"', "{", "}", "[", "]", "null", "-1", "1e9", ":", ",", '"type": "WordPiece"', '"(?=a*)*b"', "999999999"]
    pieces += [
        '"\\ud800"',
        '"id": 4294967295',
        '"content": ""',
        '"BPE"',
        '"Metaspace"',
        "true",
        '"/etc/passwd"',
        "\\p{",
    ]
    outcomes = set()

    def use():
        tokenizer = Tokenizer.open(tmp_path)
        ids = tokenizer.encode("The quick 🙂 <|im_end|>")
        stream = tokenizer.stream()
        assert isinstance("".join([*map(stream.add, ids), stream.finish()]) + tokenizer.decode(ids), str)

    def try_each(name, texts):
        original = (tmp_path / name).read_bytes()
        outcomes.update(
            outcomes_alone(use, ((tmp_path / name, text.encode("utf-8", "replace")) for text in texts), tmp_path)
        )
        written(tmp_path / name, original)

    use()
    config = (folder / "tokenizer_config.json").read_text()
    settings = text_mutations(content[:1500], COPIES, pieces)  # and added tokens
    try_each("tokenizer.json", (text + content[1500:] for text in settings))
    try_each("tokenizer.json", (content[:tail] + text for text in text_mutations(content[tail:], 30, pieces, seed=1)))
    try_each("tokenizer.json", json_mutations(json.loads(content), COPIES))
    try_each("tokenizer_config.json", text_mutations(config, COPIES // 2, pieces, seed=2))
    try_each("tokenizer_config.json", json_mutations(json.loads(config), COPIES // 2))
    assert outcomes == {True, False}


def test_mutated_vocabularies_are_read_or_refused(made, tmp_path, monkeypatch):
    kind, folder, _ = made
    content = gguf_of(kind, folder, tmp_path / "m.gguf").read_bytes()
    outcomes = set()

    def use():
        tokenizer = Tokenizer.open("m.gguf")
        tokenizer.decode(tokenizer.encode("The quick 🙂 <|im_end|>"))

    for mutated in mutations(content, 100):
        in_memory = np.frombuffer(mutated, np.uint8)
        monkeypatch.setattr("oneir.llm.files.gguf.map_file", lambda path, data=in_memory: data)
        outcomes.add(survives(use))
    assert outcomes == {True, False}
