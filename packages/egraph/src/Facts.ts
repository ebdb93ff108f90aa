/** What the rules and the cost of tensor programs want to know of a class. */
import type * as DType from "@tg/core-uop/DType"
import type * as Shape from "@tg/core-uop/Shape"
import type { UOp } from "@tg/core-uop/UOp"
import * as Analysis from "./Analysis.ts"
import type { EGraph } from "./EGraph.ts"
import type { ClassId } from "./ENode.ts"

/** The facts of a tensor program's classes. */
export interface Facts {
  readonly shape: Shape.Shape | undefined
  readonly dtype: DType.DType | undefined
  readonly constant: number | undefined
  /** `Analysis.places` names them. */
  readonly residency: number
}

/** An e-graph of a tensor program. */
export type TensorGraph = EGraph<Facts>

/** The analyses of tensor programs, told where storage is. */
export const analysis = (residency: (storage: UOp) => Analysis.Residency): Analysis.Analysis<Facts> =>
  Analysis.all({
    shape: Analysis.shape,
    dtype: Analysis.dtype,
    constant: Analysis.constant,
    residency: Analysis.residency(residency)
  })

/** The shape of a value's class. */
export const shapeOf = (graph: TensorGraph, id: ClassId): Shape.Shape => graph.facts(id).shape ?? []

/** The dtype of a value's class. */
export const dtypeOf = (graph: TensorGraph, id: ClassId): DType.DType => {
  const { dtype } = graph.facts(id)
  if (dtype === undefined) throw new Error(`class ${id} has no dtype`)
  return dtype
}
