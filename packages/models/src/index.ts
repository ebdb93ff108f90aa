export * as Models from "./Models.ts"
