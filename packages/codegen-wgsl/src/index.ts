export * as Placed from "./Placed.ts"
export * as Wgsl from "./Wgsl.ts"
export * as WgslRenderer from "./WgslRenderer.ts"
