/**
 * Who waits at the barriers of a persistent launch, changed in its text, for `bench/edits.ts`:
 *
 *     node bench/edits.ts model.gguf bench/support/waiting.ts
 *
 * Words that cross barriers which workgroups pass are awaited, so values are right with all of these.
 */

/** A barrier that workgroups pass, in a launch: who waits, and how many arrivals all of them are in all. */
const passed = /^( *)if \(workgroup_id\.x >= (\d+)u\) \{ meet\(local_invocation_id\.x, (come\d+), (\d+)u, 0u\); \}$/gm

/** Workgroups of the launch: arrivals of its first barrier. */
const workgroupsOf = (code: string): number =>
  Math.min(...[...code.matchAll(/meet\(local_invocation_id\.x, come\d+, (\d+)u/g)].map(([, all]) => Number(all)))

/** Nobody waits at a barrier that some pass. */
export const nobody = (code: string): string => code.replace(passed, "")

/** Everybody waits there, for all. Barriers that all pass are no longer in the text. */
export const everybody = (code: string): string => code.replace(passed, "$1meet(local_invocation_id.x, $3, $4u, 0u);")

/** Who waits goes on when this part of those who pass have arrived. */
const untilSome = (part: number) => (code: string): string =>
  code.replace(passed, (_, pad: string, first: string, come: string, all: string) => {
    const some = Number(all) - Math.floor((1 - part) * Number(first))
    return `${pad}if (workgroup_id.x >= ${first}u) { meet(local_invocation_id.x, ${come}, ${some}u, 0u); }`
  })

export const untilQuarter = untilSome(0.25)
export const untilHalf = untilSome(0.5)
export const untilMost = untilSome(0.9)

/** Nobody waits where more than half of all workgroups pass. */
export const few = (code: string): string => {
  const workgroups = workgroupsOf(code)
  return code.replace(passed, (line, _, first: string) => 2 * Number(first) > workgroups ? "" : line)
}
