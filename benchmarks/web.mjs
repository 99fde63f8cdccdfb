// Times model.mjs beside onnxruntime-web, turn by turn, and prints medians in milliseconds; see web.py.
import { existsSync, readFileSync } from "node:fs";
import { functions, load } from "./model.mjs";

const ort = await import(process.argv[2]);
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const rounds = Number(process.argv[3]);

const [model, input] = [await load(), functions.main.inputs[0]];
const external = existsSync("model.onnx.data") ? [{ path: "model.onnx.data", data: readFileSync("model.onnx.data") }] : [];
const session = await ort.InferenceSession.create(readFileSync("model.onnx"), {
  executionProviders: ["wasm"], graphOptimizationLevel: "all", externalData: external,
});
const shape = input.shape.map((extent) => (typeof extent === "number" ? extent : 1));
const count = shape.reduce((a, b) => a * b, 1);
const data = input.dtype === "int64"
  ? BigInt64Array.from({ length: count }, (_, i) => BigInt((i * 37) % 200))
  : Float32Array.from({ length: count }, (_, i) => Math.abs(Math.sin(i)));
const feeds = { [session.inputNames[0]]: new ort.Tensor(input.dtype, data, shape) };
const ours = () => Object.values(model.run({ [input.name]: { data, shape } }))[0].data;
const theirs = async () => (await session.run(feeds))[session.outputNames[0]].data;

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
async function turn(call) {
  const times = [], end = performance.now() + 700;
  while (times.length < 3 || performance.now() < end) {
    const start = performance.now();
    await call();
    times.push(performance.now() - start);
  }
  return median(times);
}

const [a, b] = [ours(), await theirs()];
const difference = a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);
await turn(ours), await turn(theirs);
const times = { oneir: [], ort: [] };
for (let i = 0; i < rounds; i++) {
  times.oneir.push(await turn(ours));
  times.ort.push(await turn(theirs));
}
console.log(JSON.stringify({ oneir: median(times.oneir), ort: median(times.ort), difference }));
