export * as Compiler from "./Compiler.ts"
export * as Estimate from "./Estimate.ts"
export * as Jit from "./Jit.ts"
export * as Plan from "./Plan.ts"
