export * as Apart from "./Apart.ts"
export * as Models from "./Models.ts"
