import type * as DType from "@tg/core-uop/DType"
import { build } from "./internal/randomBuilder.ts"
import { generator } from "./internal/generator.ts"
import type { TensorProgram } from "./Program.ts"

/** One step of a random program: what to do, and numbers that pick operands among the values made before. */
export interface Step {
  readonly kind: StepKind
  readonly picks: ReadonlyArray<number>
}

/** An input buffer with its contents. */
export interface RandomInput {
  readonly id: number
  readonly dtype: DType.DType
  /** Sizes with the variables filled in. */
  readonly shape: ReadonlyArray<number>
  /** The largest sizes: the data lie row-major in this shape. */
  readonly capacity: ReadonlyArray<number>
  readonly data: Float32Array | Int32Array | Uint32Array
}

/** An output buffer; floats of a correct compiler lie within `tolerance` of the exact result. */
export interface RandomOutput {
  readonly id: number
  readonly dtype: DType.DType
  readonly shape: ReadonlyArray<number>
  readonly capacity: ReadonlyArray<number>
  readonly tolerance: number
}

export interface RandomProgram {
  readonly steps: ReadonlyArray<Step>
  readonly program: TensorProgram
  readonly inputs: ReadonlyArray<RandomInput>
  readonly outputs: ReadonlyArray<RandomOutput>
  readonly vars: Readonly<Record<string, number>>
}

const stepKinds = [
  "inputFloat",
  "inputInt",
  "inputUint",
  "inputTall",
  "add",
  "mul",
  "sub",
  "div",
  "maximum",
  "exp2",
  "log2",
  "sqrt",
  "sin",
  "silu",
  "bits",
  "shift",
  "floordiv",
  "mod",
  "compare",
  "select",
  "toFloat",
  "half",
  "reshape",
  "permute",
  "expand",
  "pad",
  "shrink",
  "slide",
  "flip",
  "cat",
  "reduce",
  "largest",
  "matmul",
  "linear",
  "gather",
  "softmax",
  "norm",
  "topK",
  "store",
  "call",
  "scatter"
] as const

export type StepKind = typeof stepKinds[number]

/** The steps of a random program: a pure function of seed and size (how many steps). */
export const randomSteps = (seed: number, size: number): ReadonlyArray<Step> => {
  const next = generator(seed)
  return Array.from({ length: size }, () => ({
    kind: stepKinds[next() % stepKinds.length]!,
    picks: Array.from({ length: 6 }, () => next())
  }))
}

/** A random program of about `size` operations. Equal arguments give equal programs, on every machine. */
export const randomProgram = (seed: number, size: number): RandomProgram => buildProgram(randomSteps(seed, size))

/** Smaller programs to try when this one fails: with a run of steps, or a single step, left out. */
export function* shrinks(steps: ReadonlyArray<Step>): Generator<ReadonlyArray<Step>> {
  for (let width = steps.length >> 1; width >= 1; width >>= 1) {
    for (let at = 0; at + width <= steps.length; at += width) yield [...steps.slice(0, at), ...steps.slice(at + width)]
  }
}

/** The smallest list of steps, by leaving steps out, for which `fails` still holds. */
export const minimize = (
  steps: ReadonlyArray<Step>,
  fails: (program: RandomProgram) => boolean
): ReadonlyArray<Step> => {
  let best = steps
  let improved = true
  while (improved) {
    improved = false
    for (const candidate of shrinks(best)) {
      if (!fails(buildProgram(candidate))) continue
      best = candidate
      improved = true
      break
    }
  }
  return best
}

/** Builds the program of a list of steps. Any list is valid: a step without suitable operands does nothing. */
export const buildProgram = (steps: ReadonlyArray<Step>): RandomProgram => build(steps)
