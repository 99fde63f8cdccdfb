// A model in WebAssembly. OneIR wrote this file.
//
//     import { load } from "./NAME.mjs";
//     const model = await load();
//     const { RESULT } = model.run({ INPUT: new Float32Array(SIZE) });

const program = METADATA;

const arrays = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array,
};
const arrayOf = (dtype) => arrays[dtype] ?? Uint8Array;

/** What a model takes and gives: its functions, with the names, dtypes and shapes of inputs and outputs. */
export const functions = program.functions;

/** Why a model cannot run: inputs that it does not take, or too little memory. */
export class ModelError extends Error {}

// Memory behind the program's own. Blocks have sizes of powers of two, and freed ones are given out again.
class Heap {
  constructor(memory, start) {
    this.memory = memory;
    this.next = start;
    this.sizes = new Map();
    this.free = new Map();
  }

  allocate(bytes, alignment = 64) {
    const size = 2 ** Math.ceil(Math.log2(Math.max(bytes, 64)));
    const kept = this.free.get(size) ?? [];
    const fitting = kept.findLastIndex((block) => block % alignment === 0);
    if (fitting >= 0) return kept.splice(fitting, 1)[0];
    const step = Math.max(alignment, 128);
    const block = Math.ceil(this.next / step) * step;
    const missing = block + size - this.memory.buffer.byteLength;
    if (block + size > 2 ** 32) return 0;
    try {
      if (missing > 0) this.memory.grow(Math.ceil(missing / 65536));
    } catch {
      return 0;
    }
    this.next = block + size;
    this.sizes.set(block, size);
    return block;
  }

  release(block) {
    if (block === 0) return;
    const size = this.sizes.get(block);
    if (!this.free.has(size)) this.free.set(size, []);
    this.free.get(size).push(block);
  }
}

// What a program may need of the C library.
function library(heap, memory) {
  const bytes = () => new Uint8Array(memory().buffer);
  const copy = (to, from, count) => (bytes().copyWithin(to >>> 0, from >>> 0, (from >>> 0) + (count >>> 0)), to);
  const own = {
    malloc: (count) => heap().allocate(count >>> 0),
    free: (block) => heap().release(block >>> 0),
    memcpy: copy,
    memmove: copy,
    memset: (to, value, count) => (bytes().fill(value, to >>> 0, (to >>> 0) + (count >>> 0)), to),
    fmod: (a, b) => a % b,
    fmodf: (a, b) => a % b,
  };
  return new Proxy(own, { get: (_, name) => own[name] ?? Math[name] ?? Math[String(name).replace(/f$/, "")] });
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const url = new URL(source ?? program.wasm, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new ModelError(`${url}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

/** The model, ready to run. `source` is the .wasm file or its address; without it, the one beside this module. */
export async function load(source) {
  const model = {};
  const environment = library(() => model.heap, () => model.wasm.memory);
  const { instance } = await WebAssembly.instantiate(await bytesOf(source), { env: environment });
  model.wasm = instance.exports;
  model.heap = new Heap(instance.exports.memory, instance.exports.__heap_base.value);
  return new Model(model.wasm, model.heap);
}

class Model {
  #wasm;
  #heap;
  #model;
  #error;

  constructor(wasm, heap) {
    [this.#wasm, this.#heap] = [wasm, heap];
    [this.#model, this.#error] = [heap.allocate(16), heap.allocate(16)];
    this.#check(wasm[`${program.name}_init`](this.#model, this.#error));
  }

  /** Calls `main`, or the only function of the model. */
  run(inputs) {
    return this.call(program.main, inputs);
  }

  /** Calls a function by its name. Inputs and outputs are by name; see `functions`. */
  call(name, inputs) {
    const fn = program.functions[name];
    if (fn === undefined) {
      throw new ModelError(`there is no function ${name}; the model has ${Object.keys(program.functions).join(", ")}`);
    }
    const wanted = fn.inputs.map((input) => input.name);
    const unknown = Object.keys(inputs ?? {}).find((key) => !wanted.includes(key));
    if (unknown !== undefined) throw new ModelError(`${name} has no input ${unknown}; its inputs are ${wanted.join(", ")}`);
    const blocks = [];
    const allocate = (bytes) => {
      const block = this.#heap.allocate(bytes);
      if (block === 0) throw new ModelError(`there is no memory for ${bytes} bytes`);
      blocks.push(block);
      return block;
    };
    try {
      const [given, made, size] = [allocate(fn.inputBytes), allocate(fn.outputBytes), allocate(8)];
      for (const input of fn.inputs) this.#put(given, input, inputs?.[input.name], allocate);
      const wasm = this.#wasm;
      this.#check(wasm[`${fn.prefix}_plan`](given, made, size, this.#error));
      const shapes = fn.outputs.map((output) => this.#shape(made, output));
      const counts = shapes.map((shape) => shape.reduce((a, b) => a * b, 1));
      const places = fn.outputs.map((output, i) => allocate(counts[i] * arrayOf(output.dtype).BYTES_PER_ELEMENT));
      fn.outputs.forEach((output, i) => this.#view().setUint32(made + output.offset, places[i], true));
      const bytes = this.#view().getBigInt64(size, true);
      const workspace = allocate(Number(bytes));
      this.#check(wasm[`${fn.prefix}_run`](this.#model, given, made, workspace, bytes, this.#error));
      return Object.fromEntries(
        fn.outputs.map((output, i) => {
          const data = new (arrayOf(output.dtype))(wasm.memory.buffer, places[i], counts[i]).slice();
          return [output.name, { data, shape: shapes[i], dtype: output.dtype }];
        }),
      );
    } finally {
      blocks.forEach((block) => this.#heap.release(block));
    }
  }

  #view() {
    return new DataView(this.#wasm.memory.buffer);
  }

  #shape(made, output) {
    if (output.shapeOffset === undefined) return output.shape;
    return output.shape.map((_, axis) => Number(this.#view().getBigInt64(made + output.shapeOffset + 8 * axis, true)));
  }

  #put(given, input, value, allocate) {
    const place = given + input.offset;
    if (value === undefined) throw new ModelError(`the input ${input.name} is missing`);
    if (input.kind === "int") return this.#view().setBigInt64(place, BigInt(value), true);
    if (input.kind === "float") return this.#view().setFloat64(place, Number(value), true);
    if (input.kind === "bool") return this.#view().setUint8(place, value ? 1 : 0);
    const Type = arrayOf(input.dtype);
    const data = ArrayBuffer.isView(value) || Array.isArray(value) ? value : value?.data;
    if (!(ArrayBuffer.isView(data) || Array.isArray(data))) {
      throw new ModelError(`${input.name}: expected a ${Type.name}, an array of numbers or { data, shape }, found ${value}`);
    }
    const shape = value.shape ?? shapeFor(input, data.length);
    const count = shape.reduce((a, b) => a * b, 1);
    const fits = input.shape.every((extent, axis) => typeof extent === "string" || extent === shape[axis]);
    const whole = shape.every((extent) => Number.isSafeInteger(extent) && extent >= 0);
    if (shape.length !== input.shape.length || !fits || !whole || count !== data.length) {
      throw new ModelError(
        `${input.name}: expected ${input.dtype}[${input.shape.join(", ")}], found ${data.length} elements` +
          (value.shape ? ` of the shape [${shape.join(", ")}]` : ""),
      );
    }
    if (ArrayBuffer.isView(data) && !(data instanceof Type)) {
      throw new ModelError(`${input.name}: expected a ${Type.name} for ${input.dtype}, found a ${data.constructor.name}`);
    }
    const block = allocate(count * Type.BYTES_PER_ELEMENT);
    new Type(this.#wasm.memory.buffer, block, count).set(data);
    this.#view().setUint32(place, block, true);
    if (input.shapeOffset === undefined) return;
    shape.forEach((extent, axis) => this.#view().setBigInt64(given + input.shapeOffset + 8 * axis, BigInt(extent), true));
  }

  #check(status) {
    if (status === 0) return;
    const bytes = new Uint8Array(this.#wasm.memory.buffer, this.#view().getUint32(this.#error, true));
    throw new ModelError(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
  }
}

// The shape of an array that comes without one: its number of elements tells one unknown extent.
function shapeFor(input, count) {
  const known = input.shape.filter((extent) => typeof extent === "number").reduce((a, b) => a * b, 1);
  const unknown = input.shape.filter((extent) => typeof extent === "string");
  if (unknown.length > 1) {
    throw new ModelError(`${input.name}: expected { data, shape }, since ${unknown.join(" and ")} are not known`);
  }
  return input.shape.map((extent) => (typeof extent === "string" ? count / known : extent));
}
