/**
 * In which leaves a value is linear while the others stand still. No rule of the table asks: a contraction says of itself that it is linear in
 * each operand. So searches do not keep it, and who writes a rule or looks at a graph asks for it (`Analysis.known`).
 */
import type { UOp } from "@tg/core-uop/UOp"
import type { Analysis } from "./Analysis.ts"
import type { ENode } from "./ENode.ts"

/** Leaves of a value. */
export interface Linearity {
  /** All that it is computed from. */
  readonly reads: ReadonlySet<UOp>
  /** Those of them that it is linear in. */
  readonly linear: ReadonlySet<UOp>
}

const union = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): ReadonlySet<A> => new Set([...a, ...b])
const intersection = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): ReadonlySet<A> =>
  new Set([...a].filter((x) => b.has(x)))
const equals = <A>(a: ReadonlySet<A>, b: ReadonlySet<A>): boolean => a.size === b.size && [...a].every((x) => b.has(x))

/** A property of the value, so that equal nodes teach each other: it reads what all of them read, and is linear where one shows it. */
export const linearity: Analysis<Linearity | undefined> = {
  lattice: {
    zero: undefined,
    join: (a, b) =>
      a === undefined || b === undefined
        ? a ?? b
        : { reads: intersection(a.reads, b.reads), linear: union(a.linear, b.linear) }
  },
  eq: {
    equals: (a, b) =>
      a === b || a !== undefined && b !== undefined && equals(a.reads, b.reads) && equals(a.linear, b.linear)
  },
  of: (node, arg) => {
    if (node.kind === "other" && node.args.length === 0) {
      const leaf = new Set([node.origin.uop])
      return { reads: leaf, linear: leaf }
    }
    const args: Array<Linearity> = []
    for (const i of node.args.keys()) {
      const known = arg(i)
      // of an argument that nothing is known of, it may read everything
      if (known === undefined) return undefined
      args.push(known)
    }
    const reads = args.reduce<ReadonlySet<UOp>>((all, arg) => union(all, arg.reads), new Set())
    return { reads, linear: new Set([...reads].filter((leaf) => isLinear(node, args, leaf))) }
  }
}

const isLinear = (node: ENode, args: ReadonlyArray<Linearity>, leaf: UOp): boolean => {
  const readers = args.filter(({ reads }) => reads.has(leaf))
  if (!readers.every(({ linear }) => linear.has(leaf))) return false
  switch (node.kind) {
    case "contract":
      return readers.length === 1
    case "slice":
    case "stored":
      return true
    // nothing is added that stands still
    case "concat":
      return readers.length === args.length
    case "pointwise":
      return node.op === "ADD" ? readers.length === 2 : readers.length === 1 && readers[0] === args[0]
    case "other":
      return node.origin.uop.op === "CONTIGUOUS" && readers.length === args.length
    case "rounded":
    case "constant":
      return false
  }
}
