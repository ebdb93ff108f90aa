/** `tg synth`: a loadable model file with random weights. */
import * as Synthetic from "@tg/engine/Synthetic"
import * as Split from "@tg/gguf/Split"
import { known } from "@tg/models/Models"
import { Clock, Effect, Fiber, Option, Result, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import * as Flags from "../Flags.ts"
import * as OutFile from "../OutFile.ts"
import * as Output from "../Output.ts"
import type { UsageError } from "../Report.ts"
import * as Words from "../Words.ts"

const flags = {
  shape: Flag.String("shape").pipe(
    Flag.withMetavar("MODEL:MIX"),
    Flag.withDescription("What to imitate: glm-4.7-flash:q4_0, tiny-glm:q4_k_m, youtu-llm-2b:f16, ..")
  ),
  out: Flag.String("out").pipe(Flag.withMetavar("FILE"), Flag.withDescription("Where to write the GGUF file")),
  force: OutFile.force,
  seed: Flag.Int("seed").pipe(Flag.withDescription("Equal seeds give equal files"), Flag.withDefault(1)),
  layers: Flag.Int("layers").pipe(
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1024 }))),
    Flag.withDescription("Blocks, if not as many as the model has"),
    Flag.optional
  ),
  split: Flag.Int("split").pipe(
    Flag.withSchema(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 99999 }))),
    Flag.withMetavar("PARTS"),
    Flag.withDescription("Write this many files, NAME-00001-of-00003.gguf and so on (default: 1)"),
    Flag.withDefault(1)
  ),
  json: Flags.json
} as const

/** Writes a file piece by piece: its size does not matter to memory. */
export const command = Command.make(
  "synth",
  flags,
  Effect.fn("cli.synth")(function*({ force, json, layers, out, seed, shape, split: parts }) {
    const options = { families: known, seed, layers: Option.getOrUndefined(layers), parts }
    const files = yield* Effect.fromResult(
      parts === 1 ? Result.map(Synthetic.make(shape, options), (file) => [file]) : Synthetic.makeParts(shape, options)
    )
    const started = yield* Clock.currentTimeMillis
    const names = files.map((_, i) => nameOf(out, { number: i + 1, count: parts }))
    yield* Effect.forEach(names, (name) => OutFile.check(name, { force }))
    yield* Effect.scoped(
      Effect.gen(function*() {
        const written = yield* Effect.forEach(files, (file, i) => write(names[i]!, { file, force }))
        // all parts or none
        yield* Effect.forEach(written, (target) => target.finish)
      })
    )
    const millis = Math.max(1, (yield* Clock.currentTimeMillis) - started)
    const { name, tensors } = files[0]!.shape
    const bytes = files.reduce((sum, { size }) => sum + size, 0)
    if (json) {
      yield* Output.printJson({ out: names[0], shape: name, seed, bytes, tensors: tensors.length, parts, millis })
    }
    yield* Output.note(
      `${names[0]}${parts === 1 ? "" : ` and ${parts - 1} more`}: ${name}, ${Words.count(tensors.length, "tensor")}, ` +
        `${(bytes / 1e9).toFixed(3)} GB in ${(millis / 1000).toFixed(1)} s (${(bytes / millis / 1000).toFixed(0)} MB/s)`
    )
  })
).pipe(Command.withDescription("Write a model file with random weights, to try sizes and speeds"))

const nameOf = (out: string, part: { readonly number: number; readonly count: number }): string =>
  part.count === 1 ? out : Split.fileName(out.replace(/\.gguf$/, ""), part)

/** Writes a file up to its name. */
const write = Effect.fn("cli.synth.write")(function*(
  out: string,
  { file, force }: { readonly file: Synthetic.SyntheticFile; readonly force: boolean }
) {
  const target = yield* OutFile.open(out, { force })
  let writing: Fiber.Fiber<void, UsageError> | undefined
  for (const piece of file.pieces()) {
    // the piece before goes to the disk while this one was made
    if (writing !== undefined) yield* Fiber.join(writing)
    writing = yield* Effect.forkChild(target.append(piece), { startImmediately: true })
    // signals and other fibers get their turn
    yield* Effect.yieldNow
  }
  if (writing !== undefined) yield* Fiber.join(writing)
  return target
})
