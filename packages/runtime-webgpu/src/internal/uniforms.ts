/** The variables of a plan's programs in one uniform buffer. */
import type { Program } from "@tg/core-uop/Program"
import { type DeviceError, type Dispatch, misvaluedIn, type Vars } from "@tg/runtime/Device"
import { error } from "./queue.ts"

/** A list of variables in the buffer. */
export interface Place {
  readonly offset: number
  readonly size: number
  readonly vars: ReadonlyArray<string>
  readonly given: Program["given"]
}

/** Where the variables lie, and their values. */
export interface Uniforms {
  readonly bytes: number
  /** Where the variables of a program lie, if it has any. */
  readonly placeOf: (program: Program) => Place | undefined
  /** The words with these values, or why the programs cannot run with them. They are good until it is asked for others. */
  readonly words: (vars: Vars) => Int32Array<ArrayBuffer> | DeviceError
}

/** Places each distinct list of variables. Programs with equal lists, of which equal ones have a value given, share a place. */
export const of = (dispatches: ReadonlyArray<Dispatch>, alignment: number): Uniforms => {
  const places = new Map<string, Place>()
  const programs = new Set(dispatches.map(({ executable }) => executable.program))
  let bytes = 0
  for (const program of programs) {
    const { given, vars } = program
    const key = keyOf(program)
    if (vars.length === 0 || places.has(key)) continue
    const offset = Math.ceil(bytes / alignment) * alignment
    const size = Math.ceil(vars.length / 4) * 16
    places.set(key, { offset, size, vars, given })
    bytes = offset + size
  }
  const words = new Int32Array(bytes / 4)
  // programs with the same variables in the same bounds take the same values
  const distinct = [
    ...new Map([...programs].toReversed().map((own) => [JSON.stringify([keyOf(own), own.bounds]), own])).values()
  ]
    .toReversed()
  const lists = [...places.values()]
  return {
    bytes,
    placeOf: (program) => places.get(keyOf(program)),
    words: (vars) => {
      for (const program of distinct) {
        const misvalued = misvaluedIn(program, withGiven(vars, program.given))
        if (misvalued !== undefined) return error("BadArgument", misvalued)
      }
      for (const { given, offset, vars: names } of lists) {
        const values = withGiven(vars, given)
        for (let i = 0; i < names.length; i++) words[offset / 4 + i] = values[names[i]!]!
      }
      return words
    }
  }
}

const keyOf = ({ given, vars }: Program): string => vars.join() + (given === undefined ? "" : JSON.stringify(given))

const withGiven = (vars: Vars, given: Program["given"]): Vars => given === undefined ? vars : { ...vars, ...given }
