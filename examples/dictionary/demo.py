"""A language model of three million parameters says what words mean.

    python -m examples.dictionary.demo [QUESTION ...]

Compiles the model, asks it the questions, each as a chat of its own, and prints its answers as they come, and how long
a token takes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console

from oneir.llm import LLM

MODEL = Path(__file__).parent / "model"
QUESTIONS = ("What is an eye?", "Define year.", "What does youth mean?", "people?")

console = Console(highlight=False)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.dictionary.demo", description=__doc__)
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    questions = parser.parse_args().questions
    began = time.perf_counter()
    llm = LLM(MODEL)
    llm.generate([0], max_tokens=1)
    console.print(f"[dim]compiled or loaded in {time.perf_counter() - began:.1f} s[/dim]")
    tokens, began = 0, time.perf_counter()
    for question in questions:
        console.print(f"[bold]{question}[/bold]")
        for piece in llm.stream([{"role": "user", "content": question}]):
            console.print(piece.text, end="", markup=False)
            tokens += len(piece.token_ids)
        console.print()
    elapsed = time.perf_counter() - began
    console.print(
        f"[dim]{tokens} tokens, {1e3 * elapsed / tokens:.2f} ms each. Ask further: oneir chat {MODEL}[/dim]",
        soft_wrap=True,
    )
    llm.close()


if __name__ == "__main__":
    main()
