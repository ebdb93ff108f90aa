export * as Memory from "./Memory.ts"
export * as Rangeify from "./Rangeify.ts"
export * as Schedule from "./Schedule.ts"
