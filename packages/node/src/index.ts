export * as Devices from "./Devices.ts"
export * as Model from "./Model.ts"
export * as Ticks from "./Ticks.ts"
