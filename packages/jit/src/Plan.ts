import type { Program } from "@tg/core-uop/Program"
import { argOf, key } from "@tg/core-uop/UOp"
import * as Memory from "@tg/rangeify/Memory"
import type { Ref, Schedule, Step } from "@tg/rangeify/Schedule"

/**
 * Memory a launch binds: a buffer of the host, by id, or a block of the plan; or a window of one, in bytes. `whole` binds the
 * buffer that the host's is a slice of.
 */
export type Slot =
  & (
    | { readonly kind: "buffer"; readonly id: number; readonly whole?: boolean }
    | { readonly kind: "block"; readonly block: number }
  )
  & { readonly window?: { readonly offset: number; readonly bytes: number } }

/** One launch of the plan. */
export interface Launch {
  /** The kernel's name, for profiles and errors. */
  readonly name: string
  /** Number of the program in `programs`. */
  readonly program: number
  readonly slots: ReadonlyArray<Slot>
}

/** A compiled schedule as plain data: programs, memory and launches in order. */
export interface ExecutionPlan {
  readonly programs: ReadonlyArray<Program>
  readonly launches: ReadonlyArray<Launch>
  /** Bytes of each block of temporary memory. */
  readonly blocks: ReadonlyArray<number>
  /** The block of grid-barrier counters, if there are persistent launches. */
  readonly meeting?: number | undefined
}

/** Key of a step's program: steps with equal keys share one. */
export const keyOf = (step: Step): string => key(step.kind === "kernel" ? step.ast : step.custom)

/** Plans memory and launches. `programOf` is called once per `keyOf`. */
export const plan = (schedule: Schedule, programOf: (step: Step) => Program): ExecutionPlan => {
  const memory = Memory.planMemory(schedule)
  const programs: Array<Program> = []
  const numbers = new Map<string, number>()
  const numberOf = (step: Step): number => {
    const text = keyOf(step)
    const known = numbers.get(text)
    if (known !== undefined) return known
    programs.push(programOf(step))
    numbers.set(text, programs.length - 1)
    return programs.length - 1
  }
  const slotOf = (ref: Ref): Slot => {
    const slot = memoryOf(ref)
    const window = ref.window ?? partOfBlock(ref)
    return window === undefined ? slot : { ...slot, window }
  }
  /** A block is as large as its largest value and may exceed the limit of a binding, so smaller values bind a window. */
  const partOfBlock = (ref: Ref): Slot["window"] => {
    if (ref.kind !== "temporary") return undefined
    const { bytes } = schedule.temporaries[ref.id]!
    return bytes === memory.blocks[memory.blockOf[ref.id]!] ? undefined : { offset: 0, bytes }
  }
  const memoryOf = (ref: Ref): Slot => {
    switch (ref.kind) {
      case "buffer":
        return { kind: "buffer", id: argOf(ref.node, "BUFFER").id, ...ref.whole === true ? { whole: true } : {} }
      case "temporary":
        return { kind: "block", block: memory.blockOf[ref.id]! }
      case "param":
        throw new Error(`parameter ${ref.slot} of a function has no argument`)
    }
  }
  const launches = schedule.steps.map((step): Launch => {
    const program = numberOf(step)
    // a kernel may leave arguments unused: programs list the slots they bind
    const slots = programs[program]!.bindings.map((binding) => slotOf(step.args[binding.slot]!))
    return { name: step.name, program, slots }
  })
  const [meeting] = schedule.kept ?? []
  return {
    programs,
    launches,
    blocks: memory.blocks,
    ...meeting === undefined ? {} : { meeting: memory.blockOf[meeting]! }
  }
}
