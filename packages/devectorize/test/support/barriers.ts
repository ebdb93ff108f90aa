/** Launches with other barriers across the grid. */
import type { GridBarrierArg } from "@tg/core-uop/Phases"
import type { UOp } from "@tg/core-uop/UOp"

/** The launch with each of its barriers changed. */
export const withBarriers = (launch: UOp, change: Partial<GridBarrierArg>): UOp =>
  launch.with(launch.src.map((node) =>
    node.is("GRID_BARRIER")
      ? node.arena.make("GRID_BARRIER", node.dtype, node.src, { ...node.arg, ...change })
      : node
  ))
