"""Trains the model of this folder: `python -m examples.dictionary.train [FOLDER_OF_WORDNET]`.

The folder has WordNet's files data.noun, index.noun and cntlist.rev; Debian's package `wordnet-base` brings them. A
Llama of 3 million parameters learns what the commonest nouns mean by heart, which takes a few minutes on two cores.
Seeds are fixed; another processor or PyTorch may still round differently, so that answers change a little.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent / "model"
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
QUESTIONS = ("What is a {}?", "What is {}?", "What does {} mean?", "Define {}.", "Tell me what a {} is.", "{}?")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
WORDS, LONGEST = 600, 90
EPOCHS, BATCH, LARGEST_RATE = 50, 32, 3e-3


def definitions(folder: Path) -> dict[str, str]:
    """What the commonest nouns mean, in the order of how common they are: the first sense of each, without examples."""
    glosses = {}
    for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            head, _, gloss = line.partition(" | ")
            glosses[head.split()[0]] = re.sub(r"^\(.*?\)\s*", "", gloss.split(";")[0].strip())
    first = {}
    for line in (folder / "index.noun").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if not line.startswith(" ") and re.fullmatch("[a-z]{3,}", fields[0]):
            first[fields[0]] = glosses[next(f for f in fields if re.fullmatch(r"\d{8}", f))]
    found: dict[str, str] = {}
    counted = (line.split() for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines())
    senses = sorted((f for f in counted if "%1:" in f[0] and f[1] == "1"), key=lambda f: (-int(f[2]), f[0]))
    for key, _, _ in senses:
        word = key.partition("%")[0]
        meaning = first.get(word, "")
        if 10 <= len(meaning) <= LONGEST and word not in found and meaning.isascii() and word not in meaning:
            found[word] = f"{meaning[0].upper()}{meaning[1:]}."
        if len(found) == WORDS:
            break
    return found


def tokenizer_of(texts: Iterator[str]) -> Tokenizer:
    """Byte pairs learnt from texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=3072, special_tokens=[END, USER, ASSISTANT], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def batches(tokenizer: Tokenizer, meanings: dict[str, str]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens and what to learn of them, the answers alone: all words once, each asked in some way."""
    words = list(meanings)
    random.shuffle(words)
    for i in range(0, len(words), BATCH):
        rows, targets = [], []
        for word in words[i : i + BATCH]:
            question = random.choice(QUESTIONS).format(word)
            if random.random() < 0.3:
                question = question.lower()
            asked = tokenizer.encode(f"{USER}{question}{END}{ASSISTANT}").ids
            answer = tokenizer.encode(f"{meanings[word]}{END}").ids
            rows.append(asked + answer)
            targets.append([-100] * len(asked) + answer)
        longest = max(map(len, rows))
        yield (
            torch.tensor([row + [0] * (longest - len(row)) for row in rows]),
            torch.tensor([row + [-100] * (longest - len(row)) for row in targets]),
        )


def train(tokenizer: Tokenizer, meanings: dict[str, str]) -> LlamaForCausalLM:
    """A model that has learnt the meanings: AdamW, with a rate that rises and falls once, on the cross entropy."""
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=192,
        intermediate_size=640,
        num_hidden_layers=5,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(END),
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    steps = EPOCHS * -(-len(meanings) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LARGEST_RATE, total_steps=steps, pct_start=0.1)
    for epoch in range(EPOCHS):
        for tokens, targets in batches(tokenizer, meanings):
            loss = model(tokens, labels=targets, use_cache=False).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def save(model: LlamaForCausalLM, tokenizer: Tokenizer) -> None:
    """Writes a Hugging Face folder: the model in half precision, its tokenizer and its chat template."""
    model.half().save_pretrained(FOLDER)
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "chat_template": TEMPLATE}
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wordnet", nargs="?", type=Path, default=Path("/usr/share/wordnet"))
    folder = parser.parse_args().wordnet
    torch.manual_seed(0)
    random.seed(0)
    meanings = definitions(folder)
    tokenizer = tokenizer_of(f"{q.format(w)} {m}" for w, m in meanings.items() for q in QUESTIONS[:2])
    save(train(tokenizer, meanings), tokenizer)


if __name__ == "__main__":
    main()
