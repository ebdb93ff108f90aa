export * as Case from "./Case.ts"
export * as SelfTest from "./SelfTest.ts"
export * as Vectors from "./Vectors.ts"
export * as Verdict from "./Verdict.ts"
