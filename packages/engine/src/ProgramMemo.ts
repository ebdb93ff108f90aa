/** Tensor programs by what they were made for: sessions of one model that share a memo compile each program once. */
import type { TensorProgram } from "@tg/tensor/Program"

/** The program of a key, made when it is first asked for. Keys tell all programs of one model, cache and policy apart. */
export type ProgramMemo = (key: string, make: () => TensorProgram) => TensorProgram

/** A memo with nothing in it. */
export const make = (): ProgramMemo => {
  const made = new Map<string, TensorProgram>()
  return (key, make) => {
    const program = made.get(key) ?? make()
    made.set(key, program)
    return program
  }
}
