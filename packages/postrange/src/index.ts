export * as Loops from "./Loops.ts"
export * as Matrix from "./Matrix.ts"
export * as Opt from "./Opt.ts"
export * as Postrange from "./Postrange.ts"
