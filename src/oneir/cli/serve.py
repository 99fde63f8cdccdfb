"""`oneir serve`: a language model for clients of OpenAI's interface, or other models for those of the Open Inference
Protocol.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.device import device
from ..runtime.error import InvalidValue, OneIRError, UnsupportedError
from ..runtime.vm import Executable
from .console import counted, port, positive
from .language_model import LANGUAGE_MODEL, add_language_model_options, llm_options, load_language_model
from .model import COMPILED, KINDS, add_shape_option, load_program

if TYPE_CHECKING:
    from starlette.applications import Starlette

_EPILOG = """\
examples:
  oneir serve resnet.onnx --shape pixels=n,3,224,224 --batch 8     up to 8 images that clients send are one run
  oneir serve a.so b.onnx --name detector --name ranker            several models, and what clients call them
  oneir serve TinyLlama-1.1B-Chat                          http://127.0.0.1:8000 has a page, and /v1 is the interface
  oneir serve qwen3.gguf --host 0.0.0.0 --port 80 --batch 16
  oneir serve qwen3 --ray auto --replicas 2-8              on a Ray cluster, more replicas when there is more to do
  oneir serve llama --adapter sql=llama-sql                low-rank adapters, each under a name of its own
  ONEIR_API_KEY=secret oneir serve model                   clients need the key

what clients of a language model find:
  /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models    as OpenAI's clients expect them
  /health    200 while the model works        /metrics    numbers for Prometheus        /    the page

what clients of other models find:
  /v2, /v2/models/NAME, /v2/models/NAME/infer    the Open Inference Protocol, which KServe and Triton speak
  /v2/health/live, /v2/health/ready              200 while it works        /metrics    numbers for Prometheus
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="serve models: a language model with OpenAI's interface, others with the Open Inference Protocol",
        description="Serves models to many clients at once. Ctrl-C ends it when the answers that are under way are "
        "done, a\nsecond one at once.",
        epilog=_EPILOG,
    )
    kinds = f"{', '.join(KINDS)}, or a file of `oneir compile`"
    parser.add_argument(
        "models",
        type=Path,
        nargs="+",
        metavar="MODEL",
        help=f"a language model: {LANGUAGE_MODEL}; or any number of others: {kinds}",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 is all (127.0.0.1)")
    parser.add_argument("--port", type=port, default=8000, help="the port; 0 takes a free one (8000)")
    parser.add_argument(
        "--name",
        action="append",
        metavar="NAME",
        help="what clients call the model (the name of its folder or file); for each model one, in their order",
    )
    parser.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="a language model's answers that are generated at once (8); rows of other models' inputs that one run "
        "computes, of several requests, where no row depends on others (1)",
    )
    parser.add_argument(
        "--queue", type=positive, default=256, metavar="N", help="requests that may wait; more get a 429 (256)"
    )
    language = parser.add_argument_group("language models")
    language.add_argument(
        "--adapter",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a low-rank adapter as peft writes it, for requests whose model is NAME; again for each further one",
    )
    add_language_model_options(language)
    language.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="serve on the Ray cluster at this address; local starts one on this machine, auto joins a running one",
    )
    language.add_argument(
        "--replicas", metavar="N-M", help="with --ray, the fewest and the most replicas; N is that many (1-4)"
    )
    others = parser.add_argument_group("other models")
    add_shape_option(others)
    others.add_argument(
        "--batch-wait",
        type=_milliseconds,
        metavar="MS",
        help="milliseconds that a run waits for further requests while it has less rows than --batch (0)",
    )
    others.add_argument("--max-body", type=positive, metavar="MIB", help="the largest body of a request, in MiB (64)")
    parser.set_defaults(run=run)


def _milliseconds(text: str) -> float:
    """The type of an argument that is a time. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected milliseconds, a number from 0 on, found {text!r}")
    return value


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    language = _has_language_model(options)
    if options.ray:
        _serve_on_ray(options)
        return
    if options.replicas:
        raise InvalidValue("--replicas is for a cluster: --ray ADDRESS")
    try:
        for package in ("uvicorn", "oneir.llm.server.app" if language else "oneir.serving.app"):
            importlib.import_module(package)
    except ImportError as error:
        extra = "llm" if language else "serve"
        raise UnsupportedError(f"a server needs the package {error.name}: pip install 'oneir[{extra}]'") from None
    from ..serving.http import listen

    _check_address(options.host, options.port)
    listen(
        _language_model(options) if language else _models(options), options.host, options.port, log_requests=language
    )


def _check_address(host: str, port: int) -> None:
    """Raises `InvalidValue` where no server can listen, before models are loaded for it."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise InvalidValue(
            f"cannot listen on port {port} of {host}: {why}; see --host and --port, 0 takes a free one"
        ) from None


def _has_language_model(options: argparse.Namespace) -> bool:
    """Whether what is served is a language model. Raises `InvalidValue` for options of the other kind of models."""
    paths: list[Path] = options.models
    is_language = [p.suffix == ".gguf" or not (p.is_file() or p.suffix in (*KINDS, *COMPILED)) for p in paths]
    if any(is_language) and len(paths) > 1:
        name = paths[is_language.index(True)]
        raise InvalidValue(f"a language model has a server of its own, and {name} is one; found {len(paths)} models")
    language = any(is_language)
    others = ("shape", "batch_wait", "max_body")
    for option in (
        others if language else ("quantization", "activations", "kv_dtype", "context", "draft_tokens", "adapter", "ray")
    ):
        if getattr(options, option):
            what, found = ("models that are no language models", "one") if language else ("language models", "none")
            raise InvalidValue(f"--{option.replace('_', '-')} is for {what}; {paths[0]} is {found}")
    names = options.name or [path.stem if path.is_file() else path.name for path in paths]
    if len(names) != len(paths) or len(set(names)) != len(names):
        raise InvalidValue(
            f"expected {counted(len(paths), 'name')}, --name for each model another one; found {', '.join(names)}"
        )
    return language


def _language_model(options: argparse.Namespace) -> Starlette:
    from ..llm.server.app import create_app

    llm = load_language_model(options.models[0], options, options.batch or 8, _adapters(options.adapter))
    llm.engine.max_waiting = options.queue
    app = create_app(llm.engine, options.name[0] if options.name else llm.name, api_key=_api_key())
    app.state.model = llm  # whose engine is closed when nobody has it any more
    return app


def _serve_on_ray(options: argparse.Namespace) -> None:
    """Serves on a cluster until SIGINT."""
    try:
        ray: Any = importlib.import_module("ray")
        deploy = importlib.import_module("oneir.llm.server.ray_serve").deploy
    except ImportError as error:
        raise UnsupportedError(f"--ray needs the package {error.name}: pip install 'oneir[ray]'") from None
    fewest, dash, most = (options.replicas or "1-4").partition("-")
    numbers = (fewest, most if dash else fewest)
    if not all(number.isdecimal() for number in numbers) or not 1 <= int(numbers[0]) <= int(numbers[1]):
        raise InvalidValue(f"--replicas expects a number, or two as 1-4, found {options.replicas}")
    ray.init(address=options.ray)
    adapters = {name: str(folder.resolve()) for name, folder in _adapters(options.adapter).items()}
    deploy(
        options.models[0],
        {**llm_options(options, options.batch or 8), "adapters": adapters},
        name=options.name[0] if options.name else None,
        api_key=_api_key(),
        max_waiting=options.queue,
        replicas=(int(numbers[0]), int(numbers[1])),
        host=options.host,
        port=options.port,
    )
    print(f"serving at http://{options.host}:{options.port}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        importlib.import_module("ray.serve").shutdown()


def _adapters(given: list[str]) -> dict[str, Path]:
    found = {name: Path(folder) for name, _, folder in (one.partition("=") for one in given) if name and folder}
    if len(found) < len(given):
        raise InvalidValue(f"--adapter expects NAME=FOLDER, each name once, found {' '.join(given)}")
    return found


def _models(options: argparse.Namespace) -> Starlette:
    from ..driver.load import Model
    from ..serving.app import Served, create_app
    from ..serving.runner import Runner

    where = device(options.device or "cpu")
    served = []
    for path, name in zip(options.models, options.name or [path.stem for path in options.models], strict=True):
        program = load_program(path, options.shape, where)
        if not isinstance(program, Executable):
            raise UnsupportedError(
                f"{path} has functions of loops, which write into their arguments; a server runs graphs"
            )
        try:
            runner = Runner(
                Model(program, where),
                where,
                max_batch=options.batch or 1,
                batch_wait=(options.batch_wait or 0) / 1e3,
                max_waiting=options.queue,
            )
        except OneIRError as error:
            raise type(error)(f"{path}: {error}") from error
        served.append(Served(name, runner))
    return create_app(served, api_key=_api_key(), max_body=(options.max_body or 64) * 2**20)


def _api_key() -> str | None:
    return os.environ.get("ONEIR_API_KEY") or None
