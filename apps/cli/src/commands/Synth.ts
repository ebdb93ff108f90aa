/** `tg synth`: a loadable model file with random weights. */
import * as Synthetic from "@tg/engine/Synthetic"
import { Clock, Effect, Fiber, FileSystem, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as Output from "../Output.ts"
import { UsageError } from "../Report.ts"

const flags = {
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("What to imitate: glm-4.7-flash:q4_0, tiny-glm:q4_k_m, youtu-llm-2b:f16, ..")
  ),
  out: Flag.String("out").pipe(Flag.withMetavar("FILE"), Flag.withDescription("Where to write the GGUF file")),
  seed: Flag.Int("seed").pipe(Flag.withDescription("Equal seeds give equal files"), Flag.withDefault(1)),
  layers: Flag.Int("layers").pipe(
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1024 }))),
    Flag.withDescription("Blocks, if not as many as the model has"),
    Flag.optional
  ),
  json: Flags.json
} as const

/** Writes a file piece by piece: its size does not matter to memory. */
export const command = Command.make(
  "synth",
  flags,
  Effect.fn("cli.synth")(function*({ json, layers, out, seed, shape }) {
    const file = yield* Effect.fromResult(Synthetic.make(shape, { seed, layers: Option.getOrUndefined(layers) }))
    const started = yield* Clock.currentTimeMillis
    yield* write(out, file)
    const millis = Math.max(1, (yield* Clock.currentTimeMillis) - started)
    const { name, tensors } = file.shape
    if (json) yield* Output.printJson({ out, shape: name, seed, bytes: file.size, tensors: tensors.length, millis })
    yield* Output.note(
      `${out}: ${name}, ${tensors.length} tensors, ${(file.size / 1e9).toFixed(3)} GB in ` +
        `${(millis / 1000).toFixed(1)} s (${(file.size / millis / 1000).toFixed(0)} MB/s)`
    )
  })
).pipe(Command.withDescription("Write a model file with random weights, to try sizes and speeds"))

const write = Effect.fn("cli.synth.write")(function*(out: string, file: Synthetic.SyntheticFile) {
  const files = yield* FileSystem.FileSystem
  const cannotWrite = Effect.mapError((error: { readonly message: string }) =>
    new UsageError({ message: `${out} cannot be written: ${error.message}` })
  )
  const target = yield* files.open(out, { flag: "w" }).pipe(cannotWrite)
  let writing: Fiber.Fiber<void, UsageError> | undefined
  for (const piece of file.pieces()) {
    // the piece before goes to the disk while this one was made
    if (writing !== undefined) yield* Fiber.join(writing)
    writing = yield* Effect.forkChild(target.writeAll(piece).pipe(cannotWrite), { startImmediately: true })
  }
  if (writing !== undefined) yield* Fiber.join(writing)
}, Effect.scoped)
