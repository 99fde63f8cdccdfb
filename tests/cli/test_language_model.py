"""`oneir chat` and `oneir serve` with a fake model behind them."""

from __future__ import annotations

import errno
import io
import os
import socket
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import httpx2
import pytest
import uvicorn
from cli_results import fails, succeeds
from fake_llm import EOS, FakeRunner, FakeTokenizer, scripted_model

from oneir.cli import chat, serve
from oneir.llm.engine.engine import Engine
from oneir.llm.llm import LLM
from oneir.runtime.error import InvalidValue

SCRIPT = {
    b"user: hi\nassistant: ": "Grüße!".encode(),
    b"system: Be brief.\nuser: who?\nassistant: ": b"Me.",
    b"assistant: Me.\nuser: again?\nassistant: ": b"Still me.",
    b"[bold]\nassistant: ": b":smile: [red]",
}


NO_COMMAND = "there is no command /sing; there are /help, /stats, /reset, /clear, /exit, /quit, /bye"


class FakeLLM:
    """What the commands use of an `LLM`."""

    def __init__(self) -> None:
        self.tokenizer, self.name = FakeTokenizer(), "fake"
        self.engine = Engine(FakeRunner(scripted_model(SCRIPT)), self.tokenizer, eos_ids=[EOS])
        self.engine.start()
        weakref.finalize(self, self.engine.close)  # as that of an `LLM`

    _tokens, stream, close = LLM._tokens, LLM.stream, LLM.close


@pytest.fixture
def loaded(monkeypatch):
    """What a command was told of its model: its options."""
    found: list = []

    def load(path, options, max_batch_size, adapters=None):
        found.append((path, options, max_batch_size))
        return FakeLLM()

    monkeypatch.setattr(chat, "load_language_model", load)
    monkeypatch.setattr(serve, "load_language_model", load)
    return found


def talk(cli, monkeypatch, lines: str, *options: str):
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return cli("chat", "some-folder", *options)


def test_a_conversation_through_a_pipe(cli, monkeypatch, loaded):
    assert succeeds(talk(cli, monkeypatch, "hi\n\nhi\n")) == "Grüße!\nGrüße!\n"
    said = succeeds(talk(cli, monkeypatch, "who?\nagain?\n/reset\nagain?\n/exit\nhi\n", "--system", "Be brief."))
    assert said == "Me.\nStill me.\n\n", "after /reset nobody knows what is meant"
    assert succeeds(talk(cli, monkeypatch, "[bold]")) == ":smile: [red]\n"
    path, options, batch = loaded[0]
    assert (str(path), options.quantization, options.context, batch) == ("some-folder", None, None, 1)


@pytest.mark.parametrize("end", ["/exit", "/quit", "/bye"])
def test_every_command_that_ends_it(cli, monkeypatch, loaded, end):
    assert succeeds(talk(cli, monkeypatch, f"hi\n {end}\nhi\n")) == "Grüße!\n"


def test_help_lists_the_commands_and_so_does_that_of_the_command_line(cli, monkeypatch, loaded, capsys):
    said = succeeds(talk(cli, monkeypatch, "/help\n/clear\n")).splitlines()
    assert [line.split()[0].rstrip(",") for line in said] == ["/help", "/stats", "/reset", "/exit"]
    with pytest.raises(SystemExit):
        cli("chat", "--help")
    shown = capsys.readouterr().out
    assert all(f"  {line}\n" in shown for line in said)


def test_what_an_answer_took(cli, monkeypatch, loaded):
    lines = succeeds(talk(cli, monkeypatch, "/stats\nhi\n/stats\n")).splitlines()
    assert lines[:2] == ["there was no answer yet", "Grüße!"]
    assert lines[2] == "prompt       21 tokens, 0 of them in the cache"
    assert lines[3].startswith("first token  after ") and lines[4].startswith("answer       9 tokens, ")
    assert lines[5] == "cache        0 of 64 pages"


def test_lines_that_are_refused(cli, monkeypatch, loaded):
    message = fails(talk(cli, monkeypatch, "/sing loud\n"))
    assert message == f"oneir chat: {NO_COMMAND}"
    code, out, err = talk(cli, monkeypatch, "x" * 300)
    assert code == 1 and "the context has room for 256 tokens" in err and out == ""


def test_a_line_that_is_no_text(cli, monkeypatch, loaded):
    assert fails(talk(cli, monkeypatch, "caf\udce9?\n")) == (
        r"oneir chat: expected text in UTF-8, found the bytes b'caf\xe9?'"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--temperature", "-1"], "temperature is a number, from 0 to 100; found -1.0"),
        (["--top-p", "1.5"], "top_p is a number, from 0 to 1; found 1.5"),
    ],
)
def test_numbers_that_make_no_sense_are_told_of_before_a_model_is_loaded(cli, monkeypatch, loaded, options, message):
    assert message in fails(talk(cli, monkeypatch, "hi\n", *options))
    assert not loaded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["chat", "model", "--max-tokens", "0"],
            "oneir chat: error: argument --max-tokens: expected a number from 1 on",
        ),
        (["chat", "model", "--context", "-4"], "oneir chat: error: argument --context: expected a number from 1 on"),
        (["serve", "model", "--batch", "0"], "oneir serve: error: argument --batch: expected a number from 1 on"),
        (
            ["chat", "model", "--draft-tokens", "-1"],
            "oneir chat: error: argument --draft-tokens: expected a number from 0 on, found '-1'",
        ),
        (["serve", "model", "--draft-tokens=x"], "argument --draft-tokens: expected a number from 0 on, found 'x'"),
        (["serve", "model", "--queue", "-2"], "argument --queue: expected a number from 1 on, found '-2'"),
        (["serve", "model", "--port", "65536"], "argument --port: expected a port from 0 to 65535, found '65536'"),
        (["serve", "model", "--max-body", "0"], "argument --max-body: expected a number from 1 on, found '0'"),
        (
            ["serve", "model.onnx", "--batch-wait", "-1"],
            "argument --batch-wait: expected milliseconds, a number from 0 on, found '-1'",
        ),
        (["serve", "model.onnx", "--batch-wait", "nan"], "expected milliseconds, a number from 0 on, found 'nan'"),
        (
            ["chat", "model", "--temprature=1"],
            "oneir chat: error: unrecognized arguments: --temprature=1; did you mean --temperature?",
        ),
        (["chat", "model", "--color"], "oneir chat: error: unrecognized arguments: --color\n"),
    ],
)
def test_a_command_line_that_is_not_understood(cli, capsys, loaded, options, message):
    with pytest.raises(SystemExit) as ended:
        cli(*options)
    assert ended.value.code == 2 and message in capsys.readouterr().err and not loaded


def test_a_conversation_that_has_become_too_long(cli, monkeypatch, loaded):
    lines = iter([*["hi"] * 10, "/reset", "hi", "/exit"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    said = succeeds(cli("chat", "some-folder")).splitlines()
    message = said.index(next(line for line in said if line.startswith("the context has room for 256 tokens")))
    assert said[1 : message - 1] == ["Grüße!"] * (message - 2) and message > 2  # the last had no room to end
    assert said[message + 1] == "/reset begins anew; --context N gives more room, if the model has it"
    assert said[-1] == "Grüße!"


def test_an_address_where_no_server_can_listen_is_told_of_before_a_model_is_loaded(cli, loaded):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert fails(cli("serve", "some-folder", "--port", str(port))) == (
            f"oneir serve: cannot listen on port {port} of 127.0.0.1: {os.strerror(errno.EADDRINUSE)}; "
            "see --host and --port, 0 takes a free one"
        )
    message = fails(cli("serve", "some-folder", "--host", "256.0.0.1"))
    assert message.startswith("oneir serve: cannot listen on port 8000 of 256.0.0.1: ") and not loaded


def test_models_that_have_no_conversations(cli, monkeypatch, loaded):
    def refuse(self, messages, **more):
        raise InvalidValue(f"the template refuses {[message['role'] for message in messages]}")

    monkeypatch.setattr(FakeTokenizer, "encode_chat", refuse)
    message = fails(talk(cli, monkeypatch, "", "--system", "Be brief."))
    assert message == "oneir chat: the template refuses ['system', 'user']", "before there is a message"
    monkeypatch.setattr(chat, "load_language_model", lambda *options: SimpleNamespace(name="fake", tokenizer=None))
    assert "some-folder has no tokenizer.json" in fails(talk(cli, monkeypatch, ""))


def test_ctrl_c_at_the_prompt_says_how_to_end_it(cli, monkeypatch, loaded):
    lines = iter([KeyboardInterrupt, "hi", EOFError])

    def typed(prompt):
        line = next(lines)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", typed)
    said = succeeds(cli("chat", "some-folder"))
    assert said.splitlines() == ["fake; /help lists commands", "", "Ctrl-D or /exit ends it", "Grüße!", ""]


def test_a_terminal_shows_errors_and_goes_on(cli, monkeypatch, loaded):
    lines = iter(["/sing", "hi", "/exit"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    said = succeeds(cli("chat", "some-folder"))
    assert said.splitlines() == [
        "fake; /help lists commands",
        NO_COMMAND,
        "Grüße!",
    ]


def test_ctrl_c_ends_an_answer_and_not_the_conversation(cli, monkeypatch, loaded):
    whole = FakeLLM.stream

    def interrupted(self, messages, *options, **more):
        for i, chunk in enumerate(whole(self, messages, *options, **more)):
            if i == 2 and len(messages) == 1:
                raise KeyboardInterrupt
            yield chunk

    monkeypatch.setattr(FakeLLM, "stream", interrupted)
    assert succeeds(talk(cli, monkeypatch, "hi\nhi\n")) == "Gr\nGrüße!\n"


def test_a_server_answers_until_it_is_told_to_stop(cli, monkeypatch, loaded, capsys):
    servers: list[uvicorn.Server] = []
    made = uvicorn.Server.__init__

    def make(self, config):
        made(self, config)
        servers.append(self)

    monkeypatch.setattr(uvicorn.Server, "__init__", make)
    monkeypatch.setenv("ONEIR_API_KEY", "secret")
    found: list = []

    def ask() -> None:
        while not (servers and servers[0].started):
            time.sleep(0.01)
        address = f"http://127.0.0.1:{servers[0].servers[0].sockets[0].getsockname()[1]}"
        found.append(httpx2.get(f"{address}/v1/models").status_code)
        found.append(httpx2.get(f"{address}/v1/models", headers={"authorization": "Bearer secret"}).json())
        servers[0].should_exit = True

    asking = threading.Thread(target=ask)
    asking.start()
    code, _, _ = cli("serve", "some-folder", "--port", "0", "--name", "mine", "--batch", "3", "--queue", "5")
    asking.join()
    assert code == 0 and found[0] == 401 and found[1]["data"][0]["id"] == "mine"
    assert loaded[0][2] == 3


def test_a_package_that_is_missing(cli, monkeypatch, loaded):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert fails(cli("serve", "some-folder")) == (
        "oneir serve: a server needs the package uvicorn: pip install 'oneir[llm]'"
    )
