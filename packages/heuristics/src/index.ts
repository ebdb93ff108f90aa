export * as Heuristics from "./Heuristics.ts"
