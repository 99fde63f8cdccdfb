"""`oneir serve`: a language model for clients of OpenAI's interface, and a page to chat on."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..runtime.error import UnsupportedError
from .language_model import add_language_model_options, load_language_model

_EPILOG = """\
examples:
  oneir serve TinyLlama-1.1B-Chat                          http://127.0.0.1:8000 has a page, and /v1 is the interface
  oneir serve qwen3.gguf --host 0.0.0.0 --port 80 --batch 16
  ONEIR_API_KEY=secret oneir serve model                   clients need the key

what clients find:
  /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models    as OpenAI's clients expect them
  /health    200 while the model works        /metrics    numbers for Prometheus        /    the page
"""

STOP_SECONDS = 30
"""How long answers may go on when the server is told to stop."""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="serve a language model, with OpenAI's interface and a page to chat on",
        description="Serves a language model to many clients at once, whose requests share its steps. Ctrl-C ends it "
        "when the\nanswers that are under way are done, a second one at once.",
        epilog=_EPILOG,
    )
    add_language_model_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 is all (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port; 0 takes a free one (8000)")
    parser.add_argument("--name", help="what clients call the model (the name of its folder or file)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="answers that are generated at once (8)")
    parser.add_argument(
        "--queue", type=int, default=256, metavar="N", help="requests that may wait; more get a 429 (256)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    try:
        import uvicorn

        from ..llm.server.app import create_app
    except ImportError as error:
        raise UnsupportedError(f"a server needs the package {error.name}: pip install 'oneir[llm]'") from None
    llm = load_language_model(options, options.batch)
    llm.engine.max_waiting = options.queue
    app = create_app(llm.engine, options.name or llm.name, api_key=os.environ.get("ONEIR_API_KEY") or None)
    config = uvicorn.Config(
        app, host=options.host, port=options.port, ws="none", timeout_graceful_shutdown=STOP_SECONDS
    )
    uvicorn.Server(config).run()
