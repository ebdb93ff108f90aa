/**
 * What a build's host takes to encode and submit a token while it decodes, whatever the build: it is loaded in front of a program that imports `webgpu`, and tells on standard error when that ends.
 *
 *     node --import ./bench/submitting.mjs scripts/cli.ts bench -m glm-4.7-flash.gguf --device webgpu -n 128 -r 2
 *     node --import ./bench/submitting.mjs OTHER/tg.mjs bench -m glm-4.7-flash.gguf --device webgpu -n 128 -r 2
 *
 * Counted are the last `TOKENS` submissions (240 by default) of steps whose token is read, from the encoder to the end of `submit`, in milliseconds of wall time; a copy of the token that is submitted on its own
 * belongs to the step before it. `TOKENS` may not exceed what the last rounds decode. Runs that nobody reads, as `bench` has them for its time of a step, do not count.
 */
import { createRequire } from "node:module"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"

const program = createRequire(resolve(process.argv[1]))
const { GPUCommandEncoder, GPUDevice, GPUQueue } = (await import(pathToFileURL(program.resolve("webgpu")).href)).globals

const counted = Number(process.env.TOKENS ?? 240)
/** What encoders did, and command buffers that came of them. */
const encoders = new WeakMap()
const encoded = new WeakMap()
/** Submissions with passes, in their order. */
const steps = []

const around = ({ prototype }, name, hook) => {
  const call = prototype[name]
  prototype[name] = function(...given) {
    return hook(this, () => call.apply(this, given), given)
  }
}

around(GPUDevice, "createCommandEncoder", (_, call) => {
  const begun = performance.now()
  const encoder = call()
  encoders.set(encoder, { begun, passes: 0, copies: 0 })
  return encoder
})
for (const [name, part] of [["beginComputePass", "passes"], ["copyBufferToBuffer", "copies"]]) {
  around(GPUCommandEncoder, name, (encoder, call) => {
    encoders.get(encoder)[part]++
    return call()
  })
}
around(GPUCommandEncoder, "finish", (encoder, call) => {
  const commands = call()
  encoded.set(commands, encoders.get(encoder))
  return commands
})
around(GPUQueue, "submit", (_, call, [[commands]]) => {
  call()
  // loading submits an empty list, to have its writes carried out
  if (commands === undefined) return
  const { begun, copies, passes } = encoded.get(commands)
  const took = performance.now() - begun
  const last = steps.at(-1)
  if (passes > 0) steps.push({ took, passes, isRead: copies > 0 })
  else if (copies > 0 && last !== undefined && !last.isRead) {
    Object.assign(last, { took: last.took + took, isRead: true })
  }
})

process.on("exit", () => {
  const tokens = steps
    .filter(({ isRead }, i) => isRead && steps[i - 1]?.isRead && steps[i + 1]?.isRead)
    .flatMap(({ passes, took }) => Array(passes).fill(took / passes))
    .slice(-counted)
    .toSorted((a, b) => a - b)
  const mean = tokens.reduce((sum, each) => sum + each, 0) / tokens.length
  const at = (part) => tokens[Math.floor(part * (tokens.length - 1))]
  process.stderr.write(
    tokens.length === 0
      ? "submitting: nothing was read\n"
      : `submitting ${tokens.length} tokens: mean ${mean.toFixed(3)} ms, a tenth below ${at(0.1).toFixed(3)}, half ${
        at(0.5).toFixed(3)
      }, nine tenths ${at(0.9).toFixed(3)}\n`
  )
})
