import type { UOp } from "@tg/core-uop/UOp"
import type { Boundary } from "./Explain.ts"

/** Memory, seen from the function body that uses it. */
export type Storage =
  /** A buffer the host owns; `whole`: what it is a slice of. */
  | { readonly kind: "buffer"; readonly node: UOp; readonly whole?: true }
  /** An argument of the function. */
  | { readonly kind: "param"; readonly slot: number }
  /** Memory that exists only while the schedule runs. */
  | { readonly kind: "temporary"; readonly id: number }

/** A host buffer as a slice of the device's. */
export interface Slice {
  /** Number of the buffer it is a slice of. */
  readonly whole: number
  /** Where it begins there, and how many bytes the whole has. */
  readonly offset: number
  readonly bytes: number
}

/** Where a kernel argument lives: memory, or the window of it that the kernel sees as all there is. Sizes in bytes. */
export type Ref = Storage & { readonly window?: { readonly offset: number; readonly bytes: number } }

/** What all steps say about themselves. */
interface Origin {
  readonly args: ReadonlyArray<Ref>
  /** Why it is a step of its own: for each of the kernels that it consists of. Equal sites share it. */
  readonly boundaries: ReadonlyArray<Boundary>
  /** The labels of the calls it came from, the outer one first: `blk.12`. */
  readonly site?: string
  /** The function it is part of, the innermost one: `dense_block`. */
  readonly body?: string
}

/** One kernel of the schedule: a range program and the memory bound to its PARAM slots. */
export interface KernelStep extends Origin {
  readonly kind: "kernel"
  /** `ffn_gate_exps_256_8`: the model line, then the sizes of the output loops. */
  readonly name: string
  /** Spec `kernel`. PARAM slots and range ids count from 0, so equal kernels are equal nodes. */
  readonly ast: UOp
}

/** A hand-written kernel: the CUSTOM node (`Custom.of`) says what it is. */
export interface CustomStep extends Origin {
  readonly kind: "custom"
  readonly name: string
  readonly custom: UOp
}

export type Step = KernelStep | CustomStep

/** Bytes of one temporary. */
export interface Temporary {
  readonly bytes: number
}

/**
 * Kernels in an order in which every read happens after the writes it depends on. `results` are the temporaries that
 * hold a function's results; `kept` are those whose memory nothing else uses, so that it keeps its state from one run to the next.
 */
export interface Schedule {
  readonly steps: ReadonlyArray<Step>
  readonly temporaries: ReadonlyArray<Temporary>
  readonly results: ReadonlyArray<number>
  readonly kept?: ReadonlyArray<number> | undefined
}
