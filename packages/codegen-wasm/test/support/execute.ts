import type { UOp } from "@tg/core-uop/UOp"
import { evaluateIndex } from "@tg/core-uop/Program"
import * as Wasm from "../../src/Wasm.ts"
import { wabtBytes } from "./wabt.ts"

export type Data = Float32Array | Int32Array | Uint32Array

/** Ours, which has to give the bytes that wabt gives. */
export const assembler: Wasm.Assembler = {
  assemble: (name, text) => {
    const module = Wasm.assembler.assemble(name, text)
    const wanted = wabtBytes(text)
    const at = wanted.findIndex((byte, i) => byte !== module[i])
    if (at >= 0 || module.length !== wanted.length) throw new Error(`byte ${at} is not what wabt gives`)
    return module
  }
}

/**
 * Runs a kernel on copies of these buffers (by slot order) and returns what the memory then holds. `parts` is in how
 * many calls its iterations are done, the last ones first.
 */
export const execute = <const D extends ReadonlyArray<Data>>(
  linear: UOp,
  buffers: D,
  vars: ReadonlyArray<number> = [],
  { parts = 1, simd }: { readonly parts?: number; readonly simd?: Wasm.Simd } = {}
): D => {
  const program = Wasm.render("test", linear, assembler, { simd })
  if ("_tag" in program) throw new Error(program.message)
  // the memory ends within a page after the last buffer: accesses far outside trap
  const memory = new WebAssembly.Memory({
    initial: 1 + Math.ceil(buffers.reduce((n, b) => n + b.byteLength + 16, 0) / 65536),
    maximum: 65536,
    shared: true
  })
  const pointers: Array<number> = []
  let at = 64
  for (const data of buffers) {
    pointers.push(at)
    new Uint8Array(memory.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at)
    at += Math.ceil(data.byteLength / 16) * 16
  }
  const module = new WebAssembly.Module(program.code as Uint8Array<ArrayBuffer>)
  const { run } = new WebAssembly.Instance(module, { env: { memory } }).exports as {
    run: (...args: ReadonlyArray<number>) => void
  }
  const iterations = evaluateIndex(program.grid[0], Object.fromEntries(program.vars.map((name, i) => [name, vars[i]!])))
  for (let part = parts - 1; part >= 0; part--) {
    const [from, to] = [part, part + 1].map((p) => Math.floor(iterations * p / parts))
    run(from!, to!, ...pointers, ...vars)
  }
  return buffers.map((data, i) =>
    new (data.constructor as new(b: ArrayBuffer) => Data)(
      new Uint8Array(memory.buffer).slice(pointers[i]!, pointers[i]! + data.byteLength).buffer
    )
  ) as unknown as D
}
