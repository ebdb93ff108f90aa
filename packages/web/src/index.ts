export * as Files from "./Files.ts"
export * as Model from "./Model.ts"
export * as ModelError from "./ModelError.ts"
export * as Protocol from "./Protocol.ts"
