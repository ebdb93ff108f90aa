export * as Attached from "./Attached.ts"
export * as Grad from "./Grad.ts"
export * as GradError from "./GradError.ts"
export * as Rules from "./Rules.ts"
