"""Exported folders for browsers: what node and Chromium compute with them is what NumPy and PyTorch compute."""

from __future__ import annotations

import functools
import html
import http.server
import json
import re
import shutil
import struct
import subprocess
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import oneir
from examples.fashion_mnist.demo import imported
from examples.fashion_mnist.models import load_images, load_model
from oneir import relax
from oneir.contrib.emcc import wasm_linker
from oneir.driver.web import Page, export_web
from oneir.runtime import load_module
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_linker = pytest.mark.skipif(
    wasm_linker() is None, reason="there is no linker of WebAssembly; make cross installs it"
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

LABELS = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


@pytest.fixture(scope="module")
def clothes(tmp_path_factory):
    """The exported classifier of images of any number."""
    folder = tmp_path_factory.mktemp("web")
    executable = oneir.compile(imported(load_model("mlp")), target="wasm/simd")
    export_web(executable, folder, "clothes", Page("Clothes <of> all kinds", LABELS))
    return folder


def node(folder: Path, script: str) -> object:
    """What a script prints as JSON."""
    (folder / "script.mjs").write_text(script)
    done = subprocess.run(["node", "script.mjs"], cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_linker
@needs_node
def test_node_computes_what_pytorch_does(clothes):
    import torch

    images = (load_images()[0][:3].reshape(3, 784) / 255).astype("float32")
    (clothes / "x.json").write_text(json.dumps(images.ravel().tolist()))
    found = node(
        clothes,
        """
import { readFileSync } from "node:fs";
import { load } from "./clothes.mjs";
const model = await load(), again = await load(readFileSync("clothes.wasm"));
const x = JSON.parse(readFileSync("x.json"));
const first = model.run({ x: Float32Array.from(x) }).output_0;
let memory;
for (let i = 0; i < 2000; i++) {
  model.run({ x: { data: x.slice(0, 784 * (1 + (i % 3))), shape: [1 + (i % 3), 784] } });
}
const one = again.call("main", { x: x.slice(784, 1568) }).output_0;
console.log(JSON.stringify({ ...first, data: [...first.data], one: [...one.data] }));
""",
    )
    expected = load_model("mlp")(torch.from_numpy(images)).detach().numpy()
    assert (found["shape"], found["dtype"]) == ([3, 10], "float32")
    assert np.allclose(np.reshape(found["data"], (3, 10)), expected, atol=1e-4)
    assert np.allclose(found["one"], expected[1], atol=1e-4)


@needs_linker
@needs_node
def test_what_a_model_does_not_take_is_said(clothes):
    found = node(
        clothes,
        """
import { load, ModelError } from "./clothes.mjs";
const model = await load();
const x = new Float32Array(784), said = [];
for (const given of [{}, { y: x, x }, { x: new Float32Array(783) }, { x: { data: x, shape: [2, 784] } },
                     { x: new Float64Array(784) }, { x: 3 }, { x: { data: x, shape: [1, 1, 784] } }]) {
  try { model.run(given); said.push("ran"); } catch (e) { said.push(e instanceof ModelError ? e.message : `${e}`); }
}
try { model.call("other", { x }); } catch (e) { said.push(e.message); }
try { await load("missing.wasm"); } catch (e) { said.push(e.code); }
console.log(JSON.stringify(said));
""",
    )
    assert found == [
        "the input x is missing",
        "main has no input y; its inputs are x",
        "x: expected float32[batch, 784], found 783 elements",
        "x: expected float32[batch, 784], found 784 elements of the shape [2, 784]",
        "x: expected a Float32Array for float32, found a Float64Array",
        "x: expected a Float32Array, an array of numbers or { data, shape }, found 3",
        "x: expected float32[batch, 784], found 784 elements of the shape [1, 1, 784]",
        "there is no function other; the model has main",
        "ENOENT",
    ]


@I.ir_module
class Several:
    @R.function
    def main(x: R.Tensor(("n", "m"), "int64"), flag: R.Prim("bool"), k: R.Prim(value="k"), y: R.Tensor((3,), "bool")):
        k = T.int64()
        with R.dataflow():
            a = R.add(x, x)
            b = R.full((k,), R.const(2.5, "float64"), "float64")
            c = R.logical_not(y)
            R.output(a, b, c)
        return (a, b, c)

    @R.function
    def halves(x: R.Tensor((4,), "float16")):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y


@needs_linker
@needs_node
def test_dtypes_numbers_and_several_functions(tmp_path):
    files = export_web(relax.build(Several, "wasm/simd"), tmp_path, "several")
    assert [file.name for file in files] == [
        "several.wasm",
        "several.mjs",
        "several.d.ts",
        "index.html",
        "package.json",
    ]
    found = node(
        tmp_path,
        """
import { load } from "several";
const model = await load();
const x = { data: BigInt64Array.of(1n, -(2n ** 40n), 3n, 4n, 5n, 6n), shape: [2, 3] };
const r = model.run({ x, flag: true, k: 2, y: [1, 0, 1] });
const h = model.call("halves", { x: Uint16Array.of(0x3c00, 0, 0x4000, 0xbc00) });
console.log(JSON.stringify([r, h], (key, value) => typeof value === "bigint" ? `${value}` : ArrayBuffer.isView(value) ? [...value] : value));
""",
    )
    main, halves = found
    assert main["output_0"] == {"data": ["2", str(-(2**41)), "6", "8", "10", "12"], "shape": [2, 3], "dtype": "int64"}
    assert main["output_1"]["data"] == [2.5, 2.5] and main["output_2"]["data"] == [0, 1, 0]
    assert halves["output_0"]["data"] == [0x4000, 0, 0x4400, 0xC000]
    types = (tmp_path / "several.d.ts").read_text()
    assert "  /** int64[n, m] */\n  x: Given<BigInt64Array>;\n  /** bool */\n  flag: boolean;" in types
    assert 'call(name: "halves", inputs: HalvesInputs): HalvesOutputs;' in types


def png(pixels: np.ndarray) -> bytes:
    """A gray image as a file."""
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


USER = """<!doctype html><body><iframe id="page" src="index.html"></iframe><pre id="out"></pre><script type="module">
const frame = document.getElementById("page"), out = document.getElementById("out");
const until = async (holds) => { for (let i = 0; i < 400 && !holds(); i++) await new Promise((r) => setTimeout(r, 10)); };
await until(() => frame.contentDocument?.body?.dataset.ready);
const page = frame.contentDocument, said = [page.title];
const transfer = new DataTransfer();
transfer.items.add(new File([await (await fetch("boot.png")).blob()], "boot.png", { type: "image/png" }));
page.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
await until(() => page.querySelector("table"));
said.push(page.querySelector("td").textContent);
page.getElementById("clear").click();
page.getElementById("results").replaceChildren();
const pointer = (kind, x, y) => page.getElementById("canvas").dispatchEvent(
  new frame.contentWindow.PointerEvent(kind, { clientX: x, clientY: y, bubbles: true }));
pointer("pointerdown", 60, 60); pointer("pointermove", 200, 220); pointer("pointerup", 200, 220);
await until(() => page.querySelector("table"));
said.push(page.querySelectorAll("tr").length, page.getElementById("error").textContent);
const other = new DataTransfer();
other.items.add(new File(["no image"], "notes.txt"));
page.getElementById("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: other, bubbles: true, cancelable: true }));
await until(() => page.getElementById("error").textContent);
said.push(page.getElementById("error").textContent);
out.textContent = `SAID${JSON.stringify(said)}SAID`;
</script>"""


@needs_linker
@needs_chromium
def test_the_page_classifies_an_image_that_is_dropped_or_drawn(clothes, tmp_path):
    images, labels = load_images()
    assert labels[0] == 9
    (clothes / "boot.png").write_bytes(png(images[0].reshape(28, 28).astype("uint8")))
    (clothes / "user.html").write_text(USER)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(clothes)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
        address = f"http://127.0.0.1:{server.server_address[1]}/user.html"
        done = subprocess.run(
            [str(CHROMIUM), *flags, "--virtual-time-budget=20000", "--dump-dom", address],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    said = re.search(r'<pre id="out">SAID(.*)SAID</pre>', done.stdout)
    assert said is not None and json.loads(html.unescape(said[1])) == [
        "Clothes <of> all kinds",
        "Ankle boot",
        10,
        "",
        "notes.txt is no image",
    ]


@needs_linker
@needs_node
def test_the_folder_is_a_package_of_npm(clothes):
    described = json.loads((clothes / "package.json").read_text())
    assert described["name"] == "clothes" and described["type"] == "module"
    assert all((clothes / file).is_file() for file in [*described["files"], described["types"], described["main"]])


def test_refusals(tmp_path):
    executable = relax.build(Several, "wasm/simd")
    with pytest.raises(InvalidValue, match="'my-model' is no identifier of C"):
        export_web(executable, tmp_path, "my-model")
    with pytest.raises(InvalidValue, match=r"expected a normalization of images: \"unit\".*found 'other'"):
        Page(normalize="other")
    with pytest.raises(InvalidValue, match=r'expected an executable for WebAssembly.*target="wasm/simd".*x86_64'):
        export_web(relax.build(Several, "x86-64/v3"), tmp_path)
    host = relax.build(Several, "llvm")
    host.export_library(tmp_path / "host.tar")
    with pytest.raises(InvalidValue, match="this one was loaded from a file"):
        export_web(load_module(tmp_path / "host.tar"), tmp_path)
