import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { Context, Layer } from "effect"
import { ofProgram } from "./MatrixSplit.ts"
import type { Splitted } from "./Split.ts"

/** The stage in front of rangeify that computes cascades of reductions in pieces, where a device then takes less time. */
export class Split extends Context.Service<Split, {
  /** Names what it makes, for those who keep it. */
  readonly id?: string | undefined
  readonly split: (sink: UOp, profile: DeviceProfile) => Splitted
}>()("@tg/egraph/Split") {
  /** By cost. */
  static readonly layer = Layer.succeed(Split, {
    id: "@tg/egraph/Split",
    split: (sink, profile) => ofProgram(sink, profile)
  })

  /** Programs stay as they are written. */
  static readonly layerNone = Layer.succeed(Split, { id: "none", split: (sink) => ({ sink, reports: [] }) })
}
