/** Programs as they are bound, that do nothing. */
import type { Program } from "../../packages/core-uop/src/Program.ts"

/** The program with its bindings, and nothing to do. */
export const idle = (program: Program, number: number): Program => {
  const { bindings } = program
  const code = [
    `// ${number}`,
    ...bindings.map(({ access, at }, i) =>
      `@group(0) @binding(${at ?? i}) var<storage, ${access === "read" ? "read" : "read_write"}> b${i}: array<u32>;`
    ),
    `@compute @workgroup_size(1) fn main() { ${bindings.map((_, i) => `_ = &b${i};`).join(" ")} }`
  ]
  return {
    ...program,
    code: code.join("\n"),
    workgroup: [1, 1, 1],
    grid: [1, 1, 1],
    bindings: bindings.map(({ bytes: _, ...rest }) => rest)
  }
}
