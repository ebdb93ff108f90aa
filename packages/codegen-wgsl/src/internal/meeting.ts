/** Grid barriers of persistent launches. */
import { elementwise } from "@tg/core-uop/Op"
import { meetingWords, noBarrier } from "@tg/core-uop/Phases"
import { argOf, isCoherent, type UOp } from "@tg/core-uop/UOp"
import { accessOf } from "@tg/core-uop/View"
import { bufferName } from "./access.ts"
import { gather, variables } from "./exchanges.ts"
import { operand } from "./text.ts"
import type { Writer } from "./writer.ts"

/** The barriers of a kernel, in order. */
export const barriersOf = (linear: UOp): ReadonlyArray<UOp> => linear.src.filter(({ op }) => op === "GRID_BARRIER")

/** Whether nobody waits at a barrier. */
const isPassed = (barrier: UOp): boolean => {
  const { passes, workgroups } = argOf(barrier, "GRID_BARRIER")
  return passes === workgroups
}

/** Those at which arrivals are counted. */
const counting = (linear: UOp): ReadonlyArray<UOp> => barriersOf(linear).filter((barrier) => !isPassed(barrier))

/** Whether words that were written in front of a barrier are awaited where they are read. */
export const awaits = (linear: UOp): boolean => {
  const [first] = barriersOf(linear)
  return first !== undefined && argOf(first, "GRID_BARRIER").awaits !== undefined
}

/** The timeout flag, a bit of the counter: larger than any count, so that nobody waits any more and no launch resets it. */
const failed = 2 ** 31

/**
 * The barrier as two functions, so that loads can be issued between arrival and wait. Its counter is monotonic within a launch, so one word is
 * enough: all workgroups have arrived when it reaches `all`. A workgroup that polls too often sets the flag, and from then on nobody waits at
 * any barrier: the launch ends with values that mean nothing. The first one to set it leaves what it was waiting for. The flag is in the counter, because the latency of a second load would be added
 * to each barrier; and one thread alone knows of it, because each barrier of a workgroup costs some hundredths of a microsecond. The counter
 * is first polled as long after the arrival as its addition takes: the last workgroup need not poll, and polls do not delay arrivals. Where some pass a barrier, they may have arrived at later
 * ones, too, so who waits there may go on early: no value depends on it. At a barrier that none passes nobody has arrived at a later one, so its count is exact.
 *
 * Loads between arrival and wait are used before the wait ends, if only by a comparison that nearly never holds: NVIDIA's compiler moves a load down to the branch that uses it, and then
 * nothing is in flight during the wait (the three launches of a layer of GLM on an H100 take 51.2 us instead of 52.9).
 *
 * What is stored in front of the barrier need not be in memory when the arrival is. Neither a barrier of a workgroup nor the counter waits for
 * that: an atomic store is on its way when both are done (on an H200 it was late where a page of memory was not in the TLB, as behind another
 * program). So each word is awaited by those who read it: memory is 0 until it is written, and no word is stored as 0. Or, where readers do not (`GridBarrierArg`), words are exchanged
 * (`exchanges.ts`), which returns what was there when it is done, and nobody arrives without all that his exchanges returned; a barrier of memory in front of the arrival, which awaited words do not need, costs another one of the workgroup. WGSL promises no order across workgroups for those; a litmus
 * test of the device finds it.
 */
export const functions = (linear: UOp): ReadonlyArray<string> => {
  const [first] = barriersOf(linear)
  if (first === undefined) return []
  const { spins } = argOf(first, "GRID_BARRIER")
  const name = bufferName(first.src[0]!)
  const arrived = `${name}[${meetingWords.arrived}]`
  const gaveUp = `${name}[${meetingWords.gaveUp}]`
  const came = `${name}[${meetingWords.came}]`
  return [
    ...awaits(linear)
      ? waitsForWords({ came, gaveUp, spins })
      // the condition waits for what exchanges returned; the maximum changes nothing
      : [`fn wait_for(returned: u32) { if (returned == ${2 ** 32 - 1}u) { atomicMax(&${gaveUp}, 0u); } }`],
    `fn wait_for_loads(loaded: u32) { if (loaded == ${unlikely}u) { atomicMax(&${gaveUp}, 0u); } }`,
    `fn arrive(thread: u32) -> u32 {
${awaits(linear) ? "" : "  storageBarrier();\n"}  workgroupBarrier();
  if (thread != 0u) { return 0u; }
  return atomicAdd(&${arrived}, 1u) + 1u;
}`,
    `fn meet(thread: u32, before: u32, all: u32, loaded: u32) {
  if (thread == 0u) {
    var come = before;
    var looks = 0u;
    while (come < all) {
      come = atomicLoad(&${arrived});
      looks++;
      if (looks > ${spins}u) {
        come = atomicOr(&${arrived}, ${failed}u);
        if (come < ${failed}u) {
          atomicStore(&${gaveUp}, all);
          atomicStore(&${came}, come);
        }
        come |= ${failed}u;
      }
    }
  }
  wait_for_loads(loaded);
  storageBarrier();
}`
  ]
}

/** A word that loads of weights hardly ever make, and that does no harm: the maximum changes nothing. */
const unlikely = 0x9e3779b9

/** What stores a word and what ends waiting for one. Whoever has looked too often says so, and from then on nobody waits for long; whoever would store 0 says that too. */
const waitsForWords = (
  { came, gaveUp, spins }: { readonly came: string; readonly gaveUp: string; readonly spins: number }
): ReadonlyArray<string> => [
  `fn cannot_store() {
  atomicStore(&${came}, ${noBarrier}u);
  atomicStore(&${gaveUp}, 1u);
}`,
  `fn is_in_vain(looks: u32) -> bool {
  if (looks > ${spins}u) {
    atomicStore(&${came}, ${noBarrier}u);
    atomicStore(&${gaveUp}, looks);
  }
  return atomicLoad(&${gaveUp}) != 0u;
}`
]

const nameOf = (linear: UOp, barrier: UOp): string => `come${barriersOf(linear).indexOf(barrier)}`

/** The variables of exchanges, where there are barriers. */
export const enter = (linear: UOp): ReadonlyArray<string> =>
  barriersOf(linear).length === 0 || awaits(linear) ? [] : variables.map((line) => `  ${line}`)

/**
 * The place of arrival at each barrier: behind the last instruction in front of it that other workgroups depend on. Loads between arrival and
 * barrier are in flight during the wait.
 */
export const arrivals = (linear: UOp): ReadonlyMap<number, UOp> => {
  const found = new Map<number, UOp>()
  linear.src.forEach((node, place) => {
    if (node.op !== "GRID_BARRIER") return
    let arrival = place
    while (arrival > 0 && isQuiet(linear.src[arrival - 1]!)) arrival--
    found.set(arrival, node)
  })
  return found
}

/** Neither writes nor reads what other workgroups write. */
const isQuiet = (node: UOp): boolean =>
  node.op === "LOAD" ? !isCoherent(accessOf(node).buffer) : elementwise.has(node.op) || quiet.has(node.op)

const quiet: ReadonlySet<string> = new Set(["CONST", "VAR", "PARAM", "SPECIAL", "INDEX", "LANE", "STACK"])

/** The lines that arrive at a barrier. Where nobody waits, a workgroup is done with its memory all the same. */
export const arrive = (linear: UOp, barrier: UOp): ReadonlyArray<string> =>
  isPassed(barrier) ? ["storageBarrier();", "workgroupBarrier();"] : [
    ...awaits(linear) ? [] : [gather, "wait_for(returned);"],
    `let ${nameOf(linear, barrier)} = arrive(local_invocation_id.x);`
  ]

/** The loads between the arrival at a barrier (`arrivals`) and the wait, of each barrier. */
export const inFlight = (linear: UOp, arrivals: ReadonlyMap<number, UOp>): ReadonlyMap<UOp, ReadonlyArray<UOp>> =>
  new Map(
    [...arrivals].map(([place, barrier]) => {
      const between = linear.src.slice(place, linear.src.indexOf(barrier, place))
      return [barrier, between.filter((node) => node.op === "LOAD" && accessOf(node).buffer.op === "PARAM")]
    })
  )

/** Writes the wait at a barrier, and for these loads: where workgroups pass it, behind the first look at the words that cross it. */
export const wait = (writer: Writer, linear: UOp, barrier: UOp, loads: ReadonlyArray<UOp> = []): void => {
  const { passes, workgroups } = argOf(barrier, "GRID_BARRIER")
  const words = loads.map((load) => {
    const text = writer.text(load)
    const word = load.dtype.lanes === 1 ? text.code : `${operand(text)}.x`
    return load.dtype.scalar === "u32" ? word : `bitcast<u32>(${word})`
  })
  const loaded = words.length === 0 ? "0u" : words.join(" ^ ")
  const all = (counting(linear).indexOf(barrier) + 1) * workgroups
  const met = (before: string): string => `meet(local_invocation_id.x, ${nameOf(linear, barrier)}, ${all}u, ${before});`
  writer.builtins.add("local_invocation_id").add("workgroup_id")
  writer.later = passes === undefined || words.length === 0 ? undefined : `wait_for_loads(${loaded});`
  if (passes === undefined) writer.line(met(loaded))
  else if (passes < workgroups) writer.line(`if (workgroup_id.x >= ${passes}u) { ${met("0u")} }`)
}

/** The end of the kernel: the last workgroup to arrive resets the counter for the next launch, when no other one polls it any more. */
export const leave = (linear: UOp): ReadonlyArray<string> => {
  const [first] = barriersOf(linear)
  if (first === undefined) return []
  const { workgroups } = argOf(first, "GRID_BARRIER")
  const arrived = `${bufferName(first.src[0]!)}[${meetingWords.arrived}]`
  const last = (counting(linear).length + 1) * workgroups - 1
  return [
    `  if (local_invocation_id.x == 0u && atomicAdd(&${arrived}, 1u) == ${last}u) { atomicStore(&${arrived}, 0u); }`
  ]
}
