/** Rows of caches from one set of buffers to another, on the device. */
import * as DType from "@tg/core-uop/DType"
import { Arena } from "@tg/core-uop/UOp"
import { Jit } from "@tg/jit/Jit"
import type { DeviceBuffer } from "@tg/runtime/Device"
import * as Program from "@tg/tensor/Program"
import { buffer, variable } from "@tg/tensor/Tensor"
import { Effect } from "effect"

const fromId = 0
const toId = 1

/** Copies the first `rows` rows of each buffer of `from`, of `rowWords` words each, to its counterpart. */
export const copyRows = Effect.fn("CacheCopy.copyRows")(
  function*(from: ReadonlyArray<DeviceBuffer>, to: ReadonlyArray<DeviceBuffer>, shape: {
    readonly rows: number
    readonly rowWords: number
  }) {
    if (from.length === 0 || shape.rows === 0) return
    const jit = yield* Jit
    const arena = new Arena()
    const most = from[0]!.bytes / 4 / shape.rowWords
    const rows = variable(arena, "rows", 1, most)
    const of = (id: number) =>
      buffer(arena, id, { shape: [most, shape.rowWords], dtype: DType.u32, label: "cache" }).slice(0, 0, rows)
    const program = Program.make([Program.assign(of(toId), of(fromId))])
    for (const [i, source] of from.entries()) {
      const prepared = yield* jit.prepare(program.sink, new Map([[fromId, source], [toId, to[i]!]]))
      yield* prepared.run({ rows: shape.rows })
    }
  },
  Effect.scoped
)
