"""Temporary folders, the C compiler as a linker, and archives."""

from __future__ import annotations

import ctypes
import shutil
import tarfile
from pathlib import Path

import pytest

from oneir.contrib import cc, tar, utils
from oneir.runtime.error import CompileError, LibraryError

compiler = pytest.mark.skipif(cc.get_cc() is None, reason="this machine has no C compiler")


def test_a_temporary_folder_lives_as_long_as_its_object(tmp_path: Path) -> None:
    temp = utils.tempdir()
    Path(temp.relpath("a.txt")).write_text("a")
    assert temp.listdir() == ["a.txt"] and (temp / "a.txt").read_text() == "a"
    folder = temp.path
    del temp
    assert not folder.exists()
    kept = utils.tempdir(str(tmp_path / "own"), keep_for_debug=True)
    del kept
    assert (tmp_path / "own").is_dir()
    with pytest.raises(FileExistsError):
        utils.tempdir(str(tmp_path / "own"))


def test_paths_of_sources_are_told_from_sources(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }")
    assert utils.is_source_path(str(tmp_path / "a.c"))
    assert not utils.is_source_path(str(tmp_path / "b.c"))
    assert not utils.is_source_path((tmp_path / "a.c").read_text())
    assert utils.which("no-such-program") is None


@compiler
def test_sources_become_libraries(tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text('#ifdef __cplusplus\nextern "C"\n#endif\nint f(int x) { return x + N; }')
    library = str(tmp_path / "f.so")
    cc.create_shared(library, str(source), options=["-DN=2"])
    assert ctypes.CDLL(library).f(3) == 5
    other = str(tmp_path / "g.so")
    cc.cross_compiler(str(cc.get_cc()), ["-DN=4"])(other, [str(source)])
    assert ctypes.CDLL(other).f(3) == 7
    with pytest.raises(CompileError, match="failed with status"):
        cc.create_shared(library, str(tmp_path / "missing.c"))


def test_linking_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LibraryError, match="install gcc or clang"):
        cc.create_shared("a.so", ["a.o"])
    with pytest.raises(LibraryError, match="needs the archiver"):
        cc.create_staticlib("a.a", ["a.o"])


def test_files_of_one_name_stay_apart_in_an_archive(tmp_path: Path) -> None:
    files: list[str] = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.o").write_text(folder)
        files.append(str(tmp_path / folder / "a.o"))
    archive = str(tmp_path / "all.tar")
    tar.tar(archive, files)
    tar.untar(archive, str(tmp_path / "out"))
    assert [(tmp_path / "out" / name).read_text() for name in ("a.o", "a1.o")] == ["x", "y"]
    with tarfile.open(archive, "w") as outside:
        outside.add(files[0], arcname="../outside")
    with pytest.raises(tarfile.TarError):
        tar.untar(archive, str(tmp_path / "out"))
