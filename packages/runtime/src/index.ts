export * as Device from "./Device.ts"
