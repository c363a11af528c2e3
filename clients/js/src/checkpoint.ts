/**
 * The state of a replica as one blob: safetensors, whose metadata `state` is JSON (session spec v2, "Checkpoint").
 *
 * Nothing of a replica is changed before the whole blob has been read and fits.
 */

import { Refused } from "./errors.ts";
import type { Replica } from "./replica.ts";

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

/** Put the replica into this state, which must be of this version if one is given. */
export function loadCheckpoint(replica: Replica, blob: Uint8Array, version?: number): void {
  const { state, vectors } = read(blob);
  const { optimizer } = replica;
  const given = state.optimizer;
  const w = vectors.get("w");
  if (w?.length !== replica.wire.d) refuse(`w has ${w?.length ?? "no"} numbers, the run has d = ${replica.wire.d}`);
  if (given?.name !== optimizer.name) refuse(`the server optimiser is ${given?.name}, not ${optimizer.name}`);
  if ((given.auto === null) !== (optimizer.auto === undefined)) refuse("one of both has an automatic step");
  const kept: Record<string, Float32Array> = {};
  for (const [path, numbers] of vectors) {
    if (!numbers.every((x) => Math.abs(x) <= 1e30)) refuse(`${path} holds ${numbers.find((x) => !(Math.abs(x) <= 1e30))}; the server's model has gone astray`, "");
    const name = path.split("/").pop()!;
    if (path === "w" || name === "floor") continue;
    if (numbers.length !== replica.wire.d) refuse(`${path} has ${numbers.length} numbers, not ${replica.wire.d}`);
    kept[name] = numbers;
  }
  for (const x of [state.version, given.t]) if (!Number.isSafeInteger(x) || x < 0) refuse(`${x} is no version`, "");
  if (version !== undefined && state.version !== version) refuse(`it has version ${state.version}, not ${version}`, "");
  for (const x of [given.eta, given.unit]) if (!(x >= 0 && x <= 1e30)) refuse(`${x} is no step`, "");
  replica.w.set(w);
  replica.version = state.version;
  replica.broken = undefined;
  optimizer.t = given.t;
  optimizer.unit = given.unit;
  optimizer.eta = given.eta;
  optimizer.vectors = kept;
  optimizer.floor = Math.max(vectors.get("optimizer/tensors/floor")?.[0] ?? 0, Math.fround(1e-30));
  if (optimizer.auto) {
    optimizer.auto.eta = given.auto.eta;
    optimizer.auto.bound = given.auto.bound ?? Infinity;
    optimizer.deriveStep();
  }
}

function refuse(what: string, so = "; it is of another model or run"): never {
  throw new Refused("checkpoint", `checkpoint: ${what}${so}`);
}

/** The JSON and the vectors of a blob, by path. */
function read(blob: Uint8Array): { state: any; vectors: Map<string, Float32Array> } {
  const view = new DataView(blob.buffer, blob.byteOffset, blob.length);
  const length = blob.length < 8 ? Infinity : Number(view.getBigUint64(0, true));
  if (length > blob.length - 8) refuse("its header is cut short", "");
  try {
    const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(blob.subarray(8, 8 + length)));
    const data = blob.subarray(8 + length);
    const vectors = new Map<string, Float32Array>();
    for (const [path, entry] of Object.entries<Entry>(header)) {
      if (path === "__metadata__") continue;
      const [from, to] = entry.data_offsets;
      const size = entry.shape.reduce((n, m) => n * m, 1);
      if (entry.dtype !== "F32" || to - from !== 4 * size || to > data.length) refuse(`${path} is no whole vector of float32`, "; it is damaged");
      vectors.set(path, new Float32Array(data.slice(from, to).buffer));
    }
    return { state: JSON.parse(header.__metadata__.state), vectors };
  } catch (error) {
    if (error instanceof Refused) throw error;
    return refuse("it cannot be read", "");
  }
}
