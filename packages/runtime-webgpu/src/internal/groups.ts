/** Which launches one bind group is good for. */
import type { Program } from "@tg/core-uop/Program"
import type { Dispatch } from "@tg/runtime/Device"
import type { Bound } from "./bindings.ts"

/** Launches of one form that follow each other, and what is bound to each number of their group. */
interface Run {
  readonly form: string
  /** What happens to each of its buffers. */
  readonly group: NonNullable<Program["group"]>
  readonly held: Map<number, Bound>
}

/** Whether a buffer is bound to another number: WebGPU takes each only once where one of the bindings is written. */
const isElsewhere = ({ group, held }: Run, at: number, { memory }: Bound): boolean =>
  [...held].some(([other, each]) =>
    other !== at && each.memory === memory && (group[at] === "write" || group[other] === "write")
  )

/** Whether the run's group can hold these as well. */
const takes = (run: Run, form: string, own: ReadonlyArray<readonly [number, Bound]>): boolean =>
  run.form === form &&
  own.every(([at, each]) => (run.held.get(at)?.key ?? each.key) === each.key && !isElsewhere(run, at, each))

/**
 * What the bind group of each launch holds, by number. Programs without a group (`Program.group`) have one of their own. Others
 * share one with the launch in front of them as long as no number would need two buffers. A number that a run leaves empty gets
 * what another run has there, or nothing.
 */
export const of = (
  dispatches: ReadonlyArray<Dispatch>,
  bound: ReadonlyArray<ReadonlyArray<Bound>>
): ReadonlyArray<ReadonlyArray<Bound | undefined>> => {
  const usual = new Map<string, Bound>()
  const runs: Array<Run | undefined> = []
  let run: Run | undefined
  for (const [i, { executable: { program } }] of dispatches.entries()) {
    if (program.group === undefined) {
      run = undefined
      runs.push(undefined)
      continue
    }
    const form = `${program.group.join()};${program.vars.join()}`
    const own = bound[i]!.map((each, j) => [program.bindings[j]!.at!, each] as const)
    if (run === undefined || !takes(run, form, own)) run = { form, group: program.group, held: new Map() }
    for (const [at, each] of own) {
      run.held.set(at, each)
      if (!usual.has(`${form};${at}`)) usual.set(`${form};${at}`, each)
    }
    runs.push(run)
  }
  const whole = new Map<Run, ReadonlyArray<Bound | undefined>>()
  return runs.map((own, i) => {
    if (own === undefined) return bound[i]!
    const found = whole.get(own) ?? dispatches[i]!.executable.program.group!.map((_, at) => {
      const other = usual.get(`${own.form};${at}`)
      return own.held.get(at) ?? (other === undefined || isElsewhere(own, at, other) ? undefined : other)
    })
    whole.set(own, found)
    return found
  })
}
