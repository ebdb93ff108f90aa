/** Serialisation of execution plans. A digest guards the text: decoding returns the encoded plan or fails. */
import * as DType from "@tg/core-uop/DType"
import { ops } from "@tg/core-uop/Op"
import type { Program } from "@tg/core-uop/Program"
import { Arena, type Arg, digest, toposort, UOp } from "@tg/core-uop/UOp"
import { Result, Schema } from "effect"
import * as Base64 from "./internal/base64.ts"
import type { ExecutionPlan } from "./Plan.ts"

/** Corrupt or outdated text of a plan, or that of another key. */
export class DamagedPlan extends Schema.TaggedError<DamagedPlan>()("DamagedPlan", { message: Schema.String }) {}

const Argument = Schema.Union([
  Schema.Number,
  Schema.Boolean,
  Schema.String,
  Schema.Record(Schema.String, Schema.Union([Schema.Number, Schema.String, Schema.Boolean]))
])
/** A DAG as a table of nodes in topological order; the last node is its root. */
const Expression = Schema.Array(Schema.Struct({
  op: Schema.Literals(ops),
  dtype: Schema.Tuple([Schema.Literals(["bool", "i32", "u32", "f32", "index", "void"]), Schema.Literals([1, 2, 4])]),
  src: Schema.Array(Schema.Int),
  arg: Schema.optionalKey(Argument)
}))
const Size = Schema.Union([Schema.Number, Expression])
const Window = Schema.optionalKey(Schema.Struct({ offset: Schema.Number, bytes: Schema.Number }))

const KeptProgram = Schema.Struct({
  name: Schema.String,
  target: Schema.String,
  /** Text, or bytes in base 64. */
  code: Schema.Union([Schema.String, Schema.Struct({ base64: Schema.String })]),
  workgroup: Schema.Tuple([Schema.Number, Schema.Number, Schema.Number]),
  grid: Schema.Tuple([Size, Size, Size]),
  bindings: Schema.Array(Schema.Struct({
    slot: Schema.Number,
    access: Schema.Literals(["read", "write"]),
    bytes: Schema.optional(Schema.Number),
    at: Schema.optional(Schema.Number)
  })),
  group: Schema.optional(Schema.Array(Schema.Literals(["read", "write"]))),
  vars: Schema.Array(Schema.String),
  given: Schema.optional(Schema.Record(Schema.String, Schema.Number)),
  bounds: Schema.optional(Schema.Array(Schema.Struct({ min: Schema.Number, max: Schema.Number }))),
  instructions: Schema.optionalKey(Schema.Struct({ perPart: Size, perIteration: Size }))
})
type KeptProgram = typeof KeptProgram.Type

const Kept = Schema.Struct({
  key: Schema.String,
  programs: Schema.Array(KeptProgram),
  launches: Schema.Array(Schema.Struct({
    name: Schema.String,
    program: Schema.Number,
    slots: Schema.Array(Schema.Union([
      Schema.Struct({
        kind: Schema.Literal("buffer"),
        id: Schema.Number,
        whole: Schema.optionalKey(Schema.Boolean),
        window: Window
      }),
      Schema.Struct({ kind: Schema.Literal("block"), block: Schema.Number, window: Window })
    ]))
  })),
  blocks: Schema.Array(Schema.Number),
  meeting: Schema.optionalKey(Schema.Number)
})
const decodeKept = Schema.decodeUnknownResult(Schema.fromJsonString(Kept))

type Size = typeof Size.Type

const fromSize = (size: UOp | number): Size => {
  if (!(size instanceof UOp)) return size
  const nodes = toposort(size)
  const numbers = new Map(nodes.map((node, i) => [node, i]))
  return nodes.map(({ arg, dtype, op, src }) => ({
    op,
    dtype: [dtype.scalar, dtype.lanes],
    src: src.map((node) => numbers.get(node)!),
    ...(arg === undefined ? {} : { arg: arg as typeof Argument.Type })
  }))
}

const toSize = (arena: Arena, size: Size): UOp | number => {
  if (typeof size === "number") return size
  const made: Array<UOp> = []
  for (const { arg, dtype, op, src } of size) {
    made.push(arena.make(op, DType.make(...dtype), src.map((i) => made[i] ?? unknownNode(i)), arg as Arg))
  }
  const last = made.at(-1)
  if (last === undefined) throw new Error("an expression has no nodes")
  return last
}

const unknownNode = (number: number): never => {
  throw new Error(`node ${number} is used before it is there`)
}

const keptProgram = ({ code, grid, instructions, ...rest }: Program): KeptProgram | undefined => {
  if (typeof code !== "string" && !(code instanceof Uint8Array)) return undefined
  const [x, y, z] = grid
  return {
    ...rest,
    code: typeof code === "string" ? code : { base64: Base64.encode(code) },
    grid: [fromSize(x), fromSize(y), fromSize(z)],
    ...(instructions === undefined ? {} : {
      instructions: { perPart: fromSize(instructions.perPart), perIteration: fromSize(instructions.perIteration) }
    })
  }
}

const toProgram = (arena: Arena, { code, grid, instructions, ...rest }: KeptProgram): Program => {
  const [x, y, z] = grid
  return {
    ...rest,
    code: typeof code === "string" ? code : Base64.decode(code.base64),
    grid: [toSize(arena, x), toSize(arena, y), toSize(arena, z)],
    ...(instructions === undefined ? {} : {
      instructions: {
        perPart: toSize(arena, instructions.perPart),
        perIteration: toSize(arena, instructions.perIteration)
      }
    })
  }
}

/** The text of a plan, with its key. `undefined` where the code is neither text nor bytes: the evaluator's. */
export const encode = (key: string, { blocks, launches, meeting, programs }: ExecutionPlan): string | undefined => {
  const kept = programs.map(keptProgram)
  if (kept.includes(undefined)) return undefined
  const body = JSON.stringify({ key, programs: kept, launches, blocks, meeting })
  return `${digest(body)}\n${body}`
}

/** The plan of a text that `encode` made for the same key, over an arena of its own. */
export const decode = (key: string, text: string): Result.Result<ExecutionPlan, DamagedPlan> => {
  const end = text.indexOf("\n")
  const body = text.slice(end + 1)
  if (end < 0 || text.slice(0, end) !== digest(body)) return damaged("it is not as it was written")
  return decodeKept(body).pipe(
    Result.mapError((error) => new DamagedPlan({ message: `it has another form: ${error.message.slice(0, 500)}` })),
    Result.flatMap(({ key: found, programs, ...rest }) => {
      if (found !== key) return damaged("it is that of another program")
      const arena = new Arena()
      // throws on ill-typed nodes and malformed base64
      return Result.try({
        try: (): ExecutionPlan => ({ ...rest, programs: programs.map((program) => toProgram(arena, program)) }),
        catch: (error) => new DamagedPlan({ message: `its programs cannot be read: ${String(error).slice(0, 200)}` })
      })
    })
  )
}

const damaged = (message: string): Result.Result<never, DamagedPlan> => Result.fail(new DamagedPlan({ message }))
