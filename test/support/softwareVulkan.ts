/** Software Vulkan computes, and compiles shaders, on the processor's few cores. This leaves them to it. */
import * as os from "node:os"
import * as path from "node:path"

// most of what is compiled runs a few times: without LLVM's optimisations it is there in half the time
process.env["GALLIVM_PERF"] ??= "nopt"

// Test files compile the same kernels, so each is kept for the others: `MatrixUnits.test.ts` takes 25 s instead of 73 to 100 where all are there. A file for each
// kernel: the one file that Mesa has by default took no more of them from some 5 MB on, and why is not known.
process.env["MESA_DISK_CACHE_MULTI_FILE"] ??= "1"
process.env["MESA_SHADER_CACHE_DIR"] ??= path.join(os.tmpdir(), "tg-shaders")

// Dawn's event loop in Node asks `setImmediate` for its next tick as long as it waits for the GPU, which keeps a core busy: with ticks a millisecond apart, two test
// files beside each other take half as long
const { setImmediate: atOnce, setTimeout: later } = globalThis

const isNative = (callback: unknown): boolean => Function.prototype.toString.call(callback).includes("[native code]")

// a timer can be cleared as an immediate can, but is another type; Dawn clears neither
globalThis.setImmediate = Object.assign(
  (callback: (...args: Array<unknown>) => void, ...args: Array<unknown>) =>
    isNative(callback) ? later(callback, 1, ...args) : atOnce(callback, ...args),
  atOnce
) as unknown as typeof setImmediate
