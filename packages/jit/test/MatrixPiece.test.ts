import { assert, it } from "@effect/vitest"
import * as DeviceProfile from "@tg/core-uop/DeviceProfile"
import type { UOp } from "@tg/core-uop/UOp"
import { choose } from "@tg/heuristics/Heuristics"
import * as Loops from "@tg/postrange/Loops"
import * as Opt from "@tg/postrange/Opt"
import { apply, IllegalOpt } from "@tg/postrange/Postrange"
import { products } from "../../devectorize/test/support/products.ts"

const units: DeviceProfile.DeviceProfile = { ...DeviceProfile.h200, matrixUnits: true }

const printed = (kernel: UOp, profile: DeviceProfile.DeviceProfile): string =>
  choose(kernel, profile).map(Opt.print).join()

it("scores and mix of a piece are tiles of one workgroup, beside which nothing has more threads", () => {
  const piece = products.find(({ name }) => name === "piece")!.kernel()
  const opts = choose(piece, units)
  const tiled = new Set(opts.filter(({ kind }) => kind === "MATRIX").map(({ range }) => range))
  // rows and positions, rows and columns, and the terms of both sums
  assert.deepStrictEqual([...tiled].toSorted((a, b) => a - b), [1, 2, 3, 4, 5, 13, 14, 15, 16, 17])
  const opted = apply("piece", piece, opts, units)
  assert.notInstanceOf(opted, IllegalOpt)
  // two fragments of columns, and two of rows
  assert.strictEqual(Loops.threads(opted as UOp), 4 * 32)
  assert.notInclude(printed(piece, { ...units, maxWorkgroupBytes: 8192 }), "MATRIX")
  assert.notInclude(printed(piece, DeviceProfile.h200), "MATRIX")
})
