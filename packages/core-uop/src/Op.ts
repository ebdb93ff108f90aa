/** All operations, in the order that ranks nodes of different kinds. */
export const ops = [
  // leaves
  "CONST", // arg: value; tensor stage: src = dims (a constant tensor)
  "VAR", // arg: {name, min, max}; a symbolic integer, dtype index
  "BUFFER", // arg: {id}; src = dims; storage owned by the host
  "PARAM", // arg: {slot}; src = dims; argument of a function (tensor stage) or of a kernel (src = [length])
  "IOTA", // src = [n]; shape [n]; element i is i, dtype index
  "RANGE", // src = [size]; arg: {id, axis}; a loop variable
  "SPECIAL", // src = [size]; arg: {name}; a hardware index
  "LOCAL", // arg: {id, length}; workgroup memory; before `linear`, src = the loops that tell workgroups apart
  "REG", // src = [initial value]; arg: {id}; a mutable register
  // movement (tensor stage); dims and offsets are index UOps in src
  "RESHAPE", // src = [x, ...dims]
  "EXPAND", // src = [x, ...dims]; same rank, size-1 axes grow
  "PERMUTE", // arg: order
  "PAD", // src = [x, lo0, hi0, lo1, hi1, ...]; zeros
  "SHRINK", // src = [x, start0, size0, start1, size1, ...]
  "FLIP", // arg: axes
  "GATHER", // src = [x, index]; shape index.shape ++ x.shape[1:]
  "CONTIGUOUS",
  // reduction
  "REDUCE", // arg: {op, axes}; tensor stage: src = [x]; kernel stages: axes = [], src = [x, ...ranges]
  "GROUP_REDUCE", // arg: {op, threads}; combines a per-thread value over the threads of the group
  "SUBGROUP_REDUCE", // arg: {op, threads}; combines over neighbouring lanes of a subgroup
  // memory and order
  "INDEX", // src = [buffer, flat index, gate?]
  "LOAD", // src = [INDEX]; a false gate gives 0
  "STORE", // tensor: [view of a buffer, value]; kernel: [INDEX, value]; arg: {op}: the element becomes element (op) value
  "AFTER", // src = [buffer, ...effects]
  "END", // kernel: [STORE, ...ranges]; linear: [RANGE]
  "ACCUMULATE", // linear: reg = reg (op) value; src = [REG, value]; arg: {op}
  "BARRIER",
  "IF", // linear: src = [condition]
  "ENDIF", // linear: src = [IF]
  // structure
  "TUPLE",
  "CALL", // src = [TUPLE of results, ...args]; arg: {name}
  "GETTUPLE", // src = [CALL]; arg: index
  "CUSTOM", // a hand-written kernel on its storage: `Custom.of` reads it
  "SINK", // roots; kernel stages: the kernel, arg: {name}
  "LINEAR", // src = instructions in order
  // vectors
  "STACK", // src = lanes
  "LANE", // src = [vector]; arg: lane number
  // unary
  "CAST",
  "BITCAST",
  "NEG",
  "SQRT",
  "EXP2",
  "LOG2",
  "SIN",
  "TRUNC",
  "HALF_TO_FLOAT", // u32 with an IEEE half in its low 16 bits -> f32, exact, subnormals included
  "FLOAT_TO_HALF", // f32 -> u32, round to nearest even, overflow to infinity
  // binary
  "ADD",
  "SUB",
  "MUL",
  "FDIV", // floats
  "FLOORDIV", // integers
  "FLOORMOD", // integers; sign of the divisor
  "MAX",
  "MIN",
  "AND",
  "OR",
  "XOR",
  "SHL",
  "SHR", // logical for u32, arithmetic for i32
  "CMPLT",
  "CMPEQ",
  "CMPNE",
  "DOT4I8", // two u32 of four signed bytes each -> i32, the sum of the four products
  // ternary
  "WHERE", // [condition, a, b]
  "MULACC", // a * b + c, only where the renderer declares it
  // persistent launches; at the end, because the order of the others ranks operands
  "PHASE", // src = [kernel]; arg: {slots, offsets}; a kernel as a part of a launch in which all workgroups wait for each other
  "PERSISTENT", // src = phases; arg: {workgroups}; kernel stages: the kernel
  "GRID_BARRIER", // linear: src = [PARAM]; arg: {id, workgroups, spins}; waits for all workgroups
  // tensor stage; at the end for the same reason
  "SCATTER_ADD", // src = [initial, index, value]; arg: {order}; adds value[i] to row index[i] of initial, where there is one
  // linear: matrix units; a subgroup has each fragment, of 16 x 16 elements
  "FRAGMENT", // arg: {id, threads}; floats that products are added to, zero where it stands
  "FRAGMENT_LOAD", // src = [INDEX of words of two halves]; arg: {side, along, stride, threads}; an operand
  "FRAGMENT_MULACC", // src = [FRAGMENT, left, right]; adds the matrix product of the operands
  "FRAGMENT_STORE", // src = [INDEX, FRAGMENT]; arg: {along, stride}
  "AWAIT" // linear: src = [LOAD of a word of a coherent PARAM]; the word, as soon as it is not 0
] as const

/** The name of an operation. */
export type Op = (typeof ops)[number]

/** Rank of each operation in `ops`. */
export const ordinal: Readonly<Record<Op, number>> = Object.fromEntries(ops.map((op, i) => [op, i])) as Record<
  Op,
  number
>

const set = (...names: ReadonlyArray<Op>): ReadonlySet<Op> => new Set(names)

export const unary = set(
  "CAST",
  "BITCAST",
  "NEG",
  "SQRT",
  "EXP2",
  "LOG2",
  "SIN",
  "TRUNC",
  "HALF_TO_FLOAT",
  "FLOAT_TO_HALF"
)
export const comparison = set("CMPLT", "CMPEQ", "CMPNE")
export const binary = set(
  "ADD",
  "SUB",
  "MUL",
  "FDIV",
  "FLOORDIV",
  "FLOORMOD",
  "MAX",
  "MIN",
  "AND",
  "OR",
  "XOR",
  "SHL",
  "SHR",
  ...comparison,
  "DOT4I8"
)
export const ternary = set("WHERE", "MULACC")
/** Operations that act on each element alone. */
export const elementwise: ReadonlySet<Op> = new Set([...unary, ...binary, ...ternary])
/**
 * Elementwise operations that every renderer renders: no rule decomposes them. The others (`EXP2`, `LOG2`, `SIN`, `NEG`, `MAX`,
 * `MIN`, `MULACC`, `DOT4I8`, `HALF_TO_FLOAT`, `FLOAT_TO_HALF`) are decomposed into these where a renderer does not declare them.
 */
export const mandatory = set(
  "CAST",
  "BITCAST",
  "SQRT",
  "TRUNC",
  "ADD",
  "SUB",
  "MUL",
  "FDIV",
  "FLOORDIV",
  "FLOORMOD",
  "AND",
  "OR",
  "XOR",
  "SHL",
  "SHR",
  ...comparison,
  "WHERE"
)
/**
 * Instructions of a linear kernel that every renderer renders. `ACCUMULATE` combines with any `ReduceOp`, whether or not the
 * renderer declares that operation.
 */
export const instructions = set(
  "CONST",
  "VAR",
  "PARAM",
  "RANGE",
  "END",
  "IF",
  "ENDIF",
  "REG",
  "ACCUMULATE",
  "INDEX",
  "LOAD",
  "STORE"
)
/** Instructions that occur only with a capability of the renderer, by that capability. */
export const optionalInstructions = {
  /** `lanes` holds more than 1. */
  lanes: set("STACK", "LANE"),
  /** Workgroups of a grid, with threads that share memory. */
  hasGrid: set("SPECIAL", "LOCAL", "BARRIER"),
  /** Subgroups of a known size. */
  subgroupSize: set("SUBGROUP_REDUCE")
} as const
export const commutative = set("ADD", "MUL", "MAX", "MIN", "AND", "OR", "XOR", "CMPEQ", "CMPNE", "DOT4I8")
export const movement = set("RESHAPE", "EXPAND", "PERMUTE", "PAD", "SHRINK", "FLIP")

/** Operations a reduction may use: commutative monoids. */
export type ReduceOp = "ADD" | "MUL" | "MAX" | "MIN"
