"""`oneir chat`: a conversation with a language model, on a terminal or through a pipe."""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.error import InvalidValue, OneIRError
from .console import counted, positive, table, time_text
from .language_model import LANGUAGE_MODEL, add_language_model_options, load_language_model

if TYPE_CHECKING:
    from rich.console import Console

    from ..llm.llm import LLM

_COMMANDS = """\
/help           these commands
/stats          how many tokens there were, and how fast they came
/reset, /clear  begins anew
/exit, /quit, /bye, or Ctrl-D, ends it; Ctrl-C ends an answer"""
_ENDS = ("/exit", "/quit", "/bye")

_EPILOG = """\
examples:
  oneir chat TinyLlama-1.1B-Chat
  oneir chat qwen3.gguf --system "Answer in one sentence." --temperature 0.7
  echo "What is a compiler?" | oneir chat model.gguf        each line is a message; only answers are printed

while it runs:
  {commands}
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        help="talk to a language model",
        description="Talks to a language model, whose answers appear as they are generated.",
        epilog=_EPILOG.format(commands=_COMMANDS.replace("\n", "\n  ")),
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help=LANGUAGE_MODEL)
    add_language_model_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="instructions, before the first message")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: the most likely tokens (0)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of the most likely tokens only (1)")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answers")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="the most tokens of an answer")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from rich.console import Console

    from ..llm.engine.sampling import SamplingParams

    # What makes no sense is told before a model is loaded.
    SamplingParams(options.max_tokens, options.temperature, top_p=options.top_p, seed=options.seed)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # a line that is no text is told of
    llm = load_language_model(options.model, options, 1)
    out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    chat = _Chat(llm, options, out)
    terminal = sys.stdin.isatty()
    if terminal:
        out.print(f"{llm.name}; /help lists commands", style="dim")
    while (line := _line(out) if terminal else sys.stdin.readline()) and line.strip() not in _ENDS:
        chat.take(line.strip(), terminal)
    llm.close()


def _line(out: Console) -> str:
    """A line that the user types; empty at the end."""
    import readline  # so that lines can be edited, and earlier ones come back

    del readline
    try:
        return input("\001\033[1;32m\002> \001\033[0m\002" if out.is_terminal else "> ") + "\n"
    except EOFError:
        out.print()
        return ""
    except KeyboardInterrupt:
        out.print("\nCtrl-D or /exit ends it", style="dim")
        return "\n"


def _check_text(line: str) -> None:
    """Raises `InvalidValue` for bytes that are no text."""
    try:
        line.encode()
    except UnicodeEncodeError:
        found = line.encode(errors="surrogateescape")
        raise InvalidValue(f"expected text in UTF-8, found the bytes {found[:60]!r}") from None


class _Chat:
    """The messages so far, and how long the last answer took."""

    def __init__(self, llm: LLM, options: argparse.Namespace, out: Console):
        self._llm, self._options, self._out = llm, options, out
        self._beginning = [{"role": "system", "content": options.system}] if options.system else []
        self._messages = list(self._beginning)
        self._stats: list[tuple[str, str]] = []
        # A model that has no template, or one that takes no instructions, is told of before there is a message.
        if llm.tokenizer is None:
            raise InvalidValue(
                f"{options.model} has no tokenizer.json, so it takes the numbers of tokens, and no texts"
            )
        llm.tokenizer.encode_chat([*self._beginning, {"role": "user", "content": ""}])

    def take(self, line: str, terminal: bool) -> None:
        """Does what a line asks for. An error ends the program, unless there is a user who can ask otherwise."""
        from ..llm.engine.request import ContextExceeded

        try:
            _check_text(line)
            match line:
                case "":
                    pass
                case "/help":
                    self._out.print(_COMMANDS, style="dim")
                case "/reset" | "/clear":
                    self._messages = list(self._beginning)
                case "/stats":
                    self._out.print(table(self._stats, "<<") or "there was no answer yet", style="dim")
                case _ if line.startswith("/"):
                    names = ", ".join(re.findall(r"/\w+", _COMMANDS))
                    raise InvalidValue(f"there is no command {line.split()[0]}; there are {names}")
                case _:
                    self._answer(line)
        except OneIRError as error:
            if not terminal:
                raise
            full = isinstance(error, ContextExceeded) and self._messages != self._beginning
            hint = "\n/reset begins anew; --context N gives more room, if the model has it" if full else ""
            self._out.print(f"{error}{hint}", style="red")

    def _answer(self, question: str) -> None:
        options, engine = self._options, self._llm.engine
        messages = [*self._messages, {"role": "user", "content": question}]
        before = engine.stats.prompt_tokens, engine.stats.cached_tokens
        start = time.perf_counter()
        first, count, text = 0.0, 0, ""
        sampling = {"top_p": options.top_p, "seed": options.seed}
        try:
            for chunk in self._llm.stream(messages, options.max_tokens, options.temperature, **sampling):
                first = first or time.perf_counter() - start
                count += len(chunk.token_ids)
                text += chunk.text
                self._out.print(chunk.text, end="", style="cyan")
                sys.stdout.flush()
        except KeyboardInterrupt:
            pass  # what there is of the answer is kept
        self._out.print()
        seconds = time.perf_counter() - start - first
        self._messages = [*messages, {"role": "assistant", "content": text}]
        prompt, cached = engine.stats.prompt_tokens - before[0], engine.stats.cached_tokens - before[1]
        speed = f", {(count - 1) / seconds:.1f} a second" if count > 1 and seconds > 0 else ""
        self._stats = [
            ("prompt", f"{counted(prompt, 'token')}, {cached} of them in the cache"),
            ("first token", f"after {time_text(first * 1e3)}"),
            ("answer", counted(count, "token") + speed),
            ("cache", "{} of {} pages".format(*engine.pages)),
        ]
