/**
 * Dawn's event loop in Node asks `setImmediate` for its next tick as long as it waits for the GPU, which keeps a core busy.
 * Software Vulkan computes, and compiles its shaders, on the same few cores: with ticks a millisecond apart, two test files
 * beside each other take half as long or less.
 */
const { setImmediate: atOnce, setTimeout: later } = globalThis

const isNative = (callback: unknown): boolean => Function.prototype.toString.call(callback).includes("[native code]")

globalThis.setImmediate = Object.assign(
  (callback: (...args: Array<unknown>) => void, ...args: Array<unknown>) =>
    isNative(callback) ? later(callback, 1, ...args) : atOnce(callback, ...args),
  atOnce
) as unknown as typeof setImmediate
