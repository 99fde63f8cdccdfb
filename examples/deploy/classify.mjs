// Classifies the images of Fashion-MNIST with the exported MLP in WebAssembly, in one batch. Browsers run it as Node does.
//
//     wasm-ld --no-entry --export-all --allow-undefined build/wasm/mlp.o -o build/mlp.wasm
//     node examples/deploy/classify.mjs build

import { readFileSync } from "node:fs";

const folder = process.argv[2] ?? ".";
const read = (name) => readFileSync(`${folder}/${name}`);

// Memory behind the program's own is given out in order and never taken back, as the C library's allocator would be.
let next;
function allocate(bytes, alignment = 64) {
  const start = Math.ceil(next / alignment) * alignment;
  next = start + bytes;
  const missing = next - wasm.memory.buffer.byteLength;
  if (missing > 0) wasm.memory.grow(Math.ceil(missing / 65536));
  return start;
}
const library = { malloc: (bytes) => allocate(bytes, 16), free: () => {} };
const { instance } = await WebAssembly.instantiate(read("mlp.wasm"), { env: library });
const wasm = instance.exports;
next = wasm.__heap_base.value;

const errorAt = allocate(4);
function checked(status) {
  if (status === 0) return;
  const bytes = new Uint8Array(wasm.memory.buffer, new Uint32Array(wasm.memory.buffer, errorAt, 1)[0]);
  throw new Error(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
}

const labels = read("labels.bin");
const images = Float32Array.from(read("images.bin"), (pixel) => pixel / 255);
const imagesAt = allocate(images.byteLength);
new Float32Array(wasm.memory.buffer, imagesAt, images.length).set(images);

// The structures of mlp.h: addresses have 4 bytes, and int64_t lies at multiples of 8.
const [model, inputs, outputs, size] = [16, 24, 24, 8].map((bytes) => allocate(bytes));
const view = () => new DataView(wasm.memory.buffer);
view().setUint32(inputs, imagesAt, true);
view().setBigInt64(inputs + 8, BigInt(labels.length), true);
view().setBigInt64(inputs + 16, 784n, true);

checked(wasm.mlp_init(model, errorAt));
checked(wasm.mlp_plan(inputs, outputs, size, errorAt));
const [count, classes] = [outputs + 8, outputs + 16].map((at) => Number(view().getBigInt64(at, true)));
const bytes = view().getBigInt64(size, true);
const [scoresAt, workspace] = [allocate(4 * count * classes), allocate(Number(bytes))];
view().setUint32(outputs, scoresAt, true);
checked(wasm.mlp_run(model, inputs, outputs, workspace, bytes, errorAt));

const scores = new Float32Array(wasm.memory.buffer, scoresAt, count * classes);
const best = (row) => row.indexOf(Math.max(...row));
const right = Array.from(labels).filter((label, i) => best(scores.slice(i * classes, (i + 1) * classes)) === label);
console.log(`${right.length} of ${count} images are classified right`);
