"""Work in another process: it is done there, and its errors come back; so does the death of the process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.runtime.apart import apart
from oneir.runtime.error import ExecutionError, InvalidValue


def test_work_is_done_in_another_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here = os.getcwd()
    apart(os.chdir, tmp_path)
    assert os.getcwd() == here
    apart(os.mkdir, tmp_path / "made")
    assert (tmp_path / "made").is_dir()
    # What is printed there is no answer, and goes where messages go.
    apart(print, "printed")
    assert capfd.readouterr() == ("", "printed\n")


def test_errors_come_back(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"nowhere: expected the folder of a model or a \.gguf file, found nothing"):
        apart(Checkpoint.open, tmp_path / "nowhere")
    with pytest.raises(ValueError, match="invalid literal"):
        apart(int, "x")


def test_a_process_that_ends_is_an_error() -> None:
    with pytest.raises(
        ExecutionError, match="raise_signal ended by SIGKILL; if it was killed, there may be too little"
    ):
        apart(signal.raise_signal, signal.SIGKILL)
    with pytest.raises(ExecutionError, match="_exit ended with 3"):
        apart(os._exit, 3)
