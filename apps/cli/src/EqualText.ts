/** What the compiler chose in place of what a model's code writes, for people: the lines of `plan --explain`. */
import type * as StepPlan from "@tg/engine/StepPlan"

type Body = StepPlan.EqualStep["bodies"][number]
type Cascade = StepPlan.EqualStep["pieces"][number]

/** A function and its calls, in their order: `expert_block, 46 sites, blk.1 to blk.46`. */
export const printSites = (
  { body = "outside of functions", sites }: {
    readonly body?: string | undefined
    readonly sites: ReadonlyArray<string>
  }
): string =>
  sites.length === 0
    ? body
    : `${body}, ${sites.length === 1 ? sites[0] : `${sites.length} sites, ${sites[0]} to ${sites.at(-1)}`}`

/** Nothing where no stage chooses. */
export const print = (steps: ReadonlyArray<StepPlan.EqualStep>): string =>
  steps.every(({ bodies, pieces }) => bodies.length === 0 && pieces.length === 0) ? "" : [
    "",
    "chosen in place of what is written, by cost",
    ...steps.flatMap((step, i) => {
      // the rules that lead to a form of a few tokens are those of the next size, which are told once
      const isTold = step.step !== "few" || steps[i + 1]?.step !== "few"
      return [
        `  ${nameOf(step)}`,
        ...step.bodies.flatMap((body) => ofBody(body, isTold)),
        ...ofCascades(step.pieces),
        ...ofExperts(step.experts)
      ]
    }),
    ""
  ].join("\n")

const nameOf = ({ step, tokens }: StepPlan.EqualStep): string =>
  step === "decode" ? "one token" : step === "few" ? `up to ${tokens} tokens` : `prompts, ${tokens} tokens at a time`

const ofBody = (own: Body, isTold: boolean): ReadonlyArray<string> => {
  const { because, isTaken, millis, name, nodes, sites, stop } = own
  const searched = stop === "too large"
    ? `not searched: ${nodes} nodes are too many`
    : `${outcome(own)}; ${nodes} nodes in ${millis.toFixed(0)} ms, ${stop === "saturated" ? stop : `ended by ${stop}`}`
  return [
    `    ${printSites({ body: name, sites })}: ${searched}`,
    ...ofOperands(own.operands),
    ...isTaken && isTold ? because.map((line) => `      ${line}`) : []
  ]
}

/** How products read a value, the form that was chosen first. */
const ofOperands = (operands: Body["operands"]): ReadonlyArray<string> =>
  operands.map(({ form, label, micros }) => {
    const told = Object.entries(micros).toSorted(([a], [b]) => Number(b === form) - Number(a === form))
      .map(([name, micros]) => `${name}, ${micros.toFixed(1)} us`).join("; ")
    return `      products read ${label ?? "a value without a name"} as ${told}`
  })

const outcome = ({ isTaken, searched, weighed }: Body): string => {
  if (weighed === undefined && isTaken) {
    return `another form: ${searched.found.toFixed(1)} us by the search, as written ${searched.written.toFixed(1)}`
  }
  if (weighed === undefined) return `as written, the search found nothing cheaper (${searched.written.toFixed(1)} us)`
  const { found, written } = weighed
  const [then, now] = [written, found].map(({ launches, micros, stages }) =>
    `${micros.toFixed(2)} us, ${launches} launches of ${stages} stages`
  )
  return isTaken ? `another form: ${now}; as written ${then}` : `as written: ${then}; another form ${now}`
}

/** What no equation turns into each other: the way that is taken, and the others that may be. */
const ofExperts = ([taken, ...others]: StepPlan.EqualStep["experts"]): ReadonlyArray<string> =>
  taken === undefined ? [] : [
    `    the experts of a block: ${
      [taken, ...others].map(({ micros, name }) => `${name}, ${micros.toFixed(1)} us`).join("; ")
    }`
  ]

/** Those of one value that stay whole, as a norm in front of a product, are many and say nothing. */
const ofCascades = (pieces: ReadonlyArray<Cascade>): ReadonlyArray<string> => {
  const told = pieces.filter(({ piece, width }) => piece !== undefined || width > 1)
  return told.length === 0 ? ["    nothing can be cut into pieces"] : told.map(ofCascade)
}

const ofCascade = (cascade: Cascade): string => {
  const { callers, isStored, label, micros, piece, positions, rows, together, wholeMicros } = cascade
  const where = callers.length === 0
    ? printSites({ sites: [] })
    : callers.map(({ body, sites }) => printSites({ body, sites })).join("; ")
  const whole = `as written, all ${positions} terms at once, ${wholeMicros.toFixed(1)} us`
  const told = piece === undefined
    ? whole
    : isStored
    ? `scores of ${rows} rows stored, their mix in chunks of ${piece} by matrix units, ${
      micros.toFixed(1)
    } us; ${whole}`
    : `in pieces of ${piece}, ${together} of ${rows} rows together, ${micros.toFixed(1)} us; ${whole}`
  return `    ${label ?? "a value without a name"} (${where}): ${told}`
}
