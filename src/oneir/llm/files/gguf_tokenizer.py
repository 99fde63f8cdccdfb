"""The tokenizer in the metadata of a GGUF file, built as one of the package `tokenizers`.

`tokenizer.ggml.model` is `llama`, SentencePiece's pieces with scores, where the pair whose piece has the best score is
merged first; or `gpt2`, byte pairs with ranked merges, after a text has been split by the expressions that
`tokenizer.ggml.pre` names. Source: llama.cpp's `llama-vocab.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.error import InvalidValue, UnsupportedError
from .gguf import GGUFFile
from .tokenizer_parts import NoTokenizer, TokenizerParts, readable, surround, tokenizers_package

if TYPE_CHECKING:
    import tokenizers

_LONGEST_PIECE = 256
"""Characters of a piece; SentencePiece makes none beyond 16 unless it is told to."""
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LOWER_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
_UPPER_WORDS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SIGNS}",),
    "qwen2": (rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_SIGNS}",),
    "tekken": (rf"{_LOWER_WORDS}|{_UPPER_WORDS}|\p{{N}}|{_CASED_SIGNS}",),
    "gpt-4o": (rf"{_LOWER_WORDS}{_CONTRACTIONS}?|{_UPPER_WORDS}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_CASED_SIGNS}",),
}
"""The expressions that split a text, one after the other."""
_SAME = {
    "llama-bpe": ("llama3", "llama-v3", "falcon3", "pixtral", "dbrx", "smaug-bpe"),
    "qwen2": ("deepseek-r1-qwen",),
    "gpt-2": ("olmo", "phi-2"),
}
_PRE = {name: kind for kind, names in _SAME.items() for name in names} | {name: name for name in _SPLITS}
"""What splits a text, by the name in `tokenizer.ggml.pre`."""
_WHOLE_WORDS = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken")
"""Where a word that is a token is never merged from its parts, and BOS is added unless the file says otherwise."""
_END_TEXTS = frozenset(
    [
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>"),
        *("<|end_of_text|>", "<｜end▁of▁sentence｜>", "<end_of_utterance>", "<|return|>", "<|call|>"),
    ]
)
"""Control tokens that end a turn; llama.cpp knows them by their texts, too."""


def gguf_tokenizer(file: GGUFFile) -> TokenizerParts:
    """What a file's metadata say of its tokenizer; errors are those of `Tokenizer.open`."""
    return _Reader(file).parts()


class _Reader:
    """The metadata of a tokenizer, and what is made of them."""

    def __init__(self, file: GGUFFile):
        self.file = file
        self.kind = file.metadata.get("tokenizer.ggml.model")
        if self.kind in (None, "none", "no_vocab"):
            raise NoTokenizer(f"{file.path}: expected the metadata tokenizer.ggml.model, found none; use token ids")
        if self.kind not in ("llama", "gpt2"):
            raise UnsupportedError(f"{file.path}: tokenizers of kind {self.kind!r} are not known, only llama and gpt2")
        self.tokens = self._strings("tokens")
        self.vocabulary = {token: index for index, token in enumerate(self.tokens)}
        if not self.tokens or len(self.vocabulary) != len(self.tokens):
            count = len(self.tokens) - len(self.vocabulary)
            raise InvalidValue(f"{file.path}: expected tokens of which no two are equal, found {count} doubles")
        self.types = self._numbers("token_type", _NORMAL)
        self.pre = self._get("pre", str, "default")

    def parts(self) -> TokenizerParts:
        """All of it."""
        package = tokenizers_package()
        special = self._special_tokens()
        bos = self.kind == "llama" or self.pre in _WHOLE_WORDS
        with readable(self.file.path):
            backend = self._pieces(package, special) if self.kind == "llama" else self._byte_pairs(package)
            added = [
                package.AddedToken(token, special=bool(kind != _USER_DEFINED), normalized=False)
                for token, kind in zip(self.tokens, self.types, strict=True)
                if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
            ]
            backend.add_tokens(added)
            surround(backend, special, self._get("add_bos_token", bool, bos), self._get("add_eos_token", bool, False))
        return TokenizerParts(backend, special, self._eos_ids(), self._templates())

    def _pieces(self, package: Any, special: dict[str, str]) -> tokenizers.Tokenizer:
        """SentencePiece's pieces. Texts get a space in front unless the file says otherwise."""
        model = package.models.BPE(
            self.vocabulary,
            self._merges_of_scores(),
            unk_token=special.get("unk_token"),
            fuse_unk=True,
            byte_fallback=True,
        )
        backend = package.Tokenizer(model)
        prefix = self._get("add_space_prefix", bool, True)
        spaces = package.normalizers.Replace(" ", "▁")
        backend.normalizer = spaces
        back = [package.decoders.Replace("▁", " "), package.decoders.ByteFallback(), package.decoders.Fuse()]
        if prefix:
            backend.normalizer = package.normalizers.Sequence([package.normalizers.Prepend("▁"), spaces])
            back.append(package.decoders.Strip(" ", 1, 0))
        backend.decoder = package.decoders.Sequence(back)
        return backend

    def _merges_of_scores(self) -> list[tuple[str, str]]:
        """Every way to put a piece together from two, the pieces with the best scores first."""
        scores, vocabulary = self._numbers("scores", 0.0), self.vocabulary
        if np.isnan(scores).any():
            raise InvalidValue(f"{self.file.path}: expected scores of tokens that are numbers, found NaN")
        joined = np.isin(self.types, (_NORMAL, _USER_DEFINED, _UNUSED))
        merges: list[tuple[str, str]] = []
        for index in np.argsort(-scores, kind="stable").tolist():
            token = self.tokens[index]
            if not joined[index] or len(token) > _LONGEST_PIECE:
                continue
            for place in range(1, len(token)):
                left, right = token[:place], token[place:]
                if left in vocabulary and right in vocabulary:
                    merges.append((left, right))
        return merges

    def _byte_pairs(self, package: Any) -> tokenizers.Tokenizer:
        """Byte pairs, after a text has been split."""
        if self.pre not in _PRE:
            raise UnsupportedError(
                f"{self.file.path}: the pre-tokenizer {self.pre!r} is not known, only {', '.join(sorted(_PRE))}"
            )
        merges = []
        for line in self._strings("merges"):
            place = line.find(" ", 1)
            merges.append((line[:place], line[place + 1 :]))
        model = package.models.BPE(self.vocabulary, merges, ignore_merges=self.pre in _WHOLE_WORDS)
        backend = package.Tokenizer(model)
        if self.pre == "qwen2":
            backend.normalizer = package.normalizers.NFC()
        splits = [
            package.pre_tokenizers.Split(package.Regex(expression), "isolated")
            for expression in _SPLITS[_PRE[self.pre]]
        ]
        in_bytes = package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = package.pre_tokenizers.Sequence([*splits, in_bytes])
        backend.decoder = package.decoders.ByteLevel()
        return backend

    def _special_tokens(self) -> dict[str, str]:
        """The texts of special tokens. The kind `llama` has ids for those that are not in the file."""
        defaults = {"bos": 1, "eos": 2, "unknown": 0} if self.kind == "llama" else {}
        names = {"bos": "bos", "eos": "eos", "unknown": "unk", "seperator": "sep", "padding": "pad", "mask": "mask"}
        special = {}
        for key, name in names.items():
            token = self._get(f"{key}_token_id", int, defaults.get(key, -1))
            if 0 <= token < len(self.tokens):
                special[f"{name}_token"] = self.tokens[token]
        return special

    def _eos_ids(self) -> list[int]:
        default = 2 if self.kind == "llama" else -1
        ends = [self._get("eos_token_id", int, default)]
        ends += [self._get(f"{key}_token_id", int, -1) for key in ("eot", "eom")]
        named = [self.vocabulary[text] for text in _END_TEXTS if text in self.vocabulary]
        ends += [token for token in named if self.types[token] == _CONTROL]
        return [token for token in ends if 0 <= token < len(self.tokens)]

    def _templates(self) -> dict[str, str]:
        """The chat templates: `tokenizer.chat_template` for all, `tokenizer.chat_template.NAME` for certain uses."""
        key = "tokenizer.chat_template"
        templates = {"default": self.file.metadata.get(key)}
        names = self.file.metadata.get(f"{key}s")
        for name in names if isinstance(names, list) else []:
            templates[str(name)] = self.file.metadata.get(f"{key}.{name}")
        return {name: text for name, text in templates.items() if isinstance(text, str)}

    def _get(self, key: str, kind: type, default: Any) -> Any:
        value = self.file.metadata.get(f"tokenizer.ggml.{key}", default)
        return value if type(value) is kind else default

    def _strings(self, key: str) -> list[str]:
        value = self.file.metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidValue(f"{self.file.path}: expected strings as tokenizer.ggml.{key}, found {value!r:.50}")
        return value

    def _numbers(self, key: str, default: float) -> np.ndarray:
        """A number for each token."""
        value = self.file.metadata.get(f"tokenizer.ggml.{key}")
        if value is None:
            return np.full(len(self.tokens), default)
        if not isinstance(value, np.ndarray) or len(value) < len(self.tokens):
            raise InvalidValue(f"{self.file.path}: expected {len(self.tokens)} numbers as tokenizer.ggml.{key}")
        return value[: len(self.tokens)]
