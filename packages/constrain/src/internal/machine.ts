/**
 * Runs rules as one lazily built automaton, whose states are sets of stacks (a graph-structured stack). States are hash-consed and
 * memoise their transitions, so text that was seen before costs one lookup a byte.
 */
import * as Frames from "./frames.ts"
import type { Frame, FrameSet, Item, State } from "./frames.ts"
import type { Leaf, Net, Rule } from "./rule.ts"

export type { Frame, FrameSet, State } from "./frames.ts"

/** A machine: one per grammar. */
export interface Machine {
  readonly start: State
  /** The state after a byte, or null. */
  readonly step: (state: State, byte: number) => State | null
  /** The state after a token that the grammar names by its id, or null. */
  readonly stepToken: (state: State, id: number) => State | null
  /** All that may follow in either of two states. */
  readonly either: (a: State, b: State) => State
  /** The number of a frame's place: its rule, its state and its count. */
  readonly placeOf: (frame: Frame) => number
  /** The state in which one of the frames of a set goes on. */
  readonly open: (set: FrameSet) => State
  /** A state of frames without what follows them: the end of their rules ends the text. */
  readonly detach: (frames: ReadonlyArray<Frame>) => State
  /** What follows the whole grammar: nothing. */
  readonly root: FrameSet
  /** How many states are kept. */
  readonly size: () => number
  /** Forgets all states, frames and transitions that no one holds. */
  readonly forget: () => void
}

/** A machine at the beginning of a rule. */
export const make = (rule: Rule): Machine => {
  const frames = Frames.make()
  const { frameOf, root } = frames
  const states = new Map<string, State>()

  const stateOf = (some: ReadonlyArray<Frame>, accepting: boolean): State => {
    const sorted = frames.normalise(some)
    const key = Frames.keyOf(sorted, accepting)
    const known = states.get(key)
    if (known !== undefined) return known
    const made: State = { id: frames.freshId(), frames: sorted, accepting, next: [] }
    states.set(key, made)
    return made
  }

  /** The state of all that can be read next from these places. */
  const close = (items: ReadonlyArray<Item>, ends = false): State => {
    const { accepting, kept } = closure(frames, items, ends)
    return stateOf(kept, accepting)
  }

  const orNull = (items: ReadonlyArray<Item>): State | null => items.length === 0 ? null : close(items)

  const step = (state: State, byte: number): State | null => {
    const known = state.next[byte]
    if (known !== undefined) return known
    const found = orNull(afterByte(state, byte))
    // a plain array of 256: holes would make it a dictionary
    if (state.next.length === 0) { for (let i = 0; i < 256; i++) state.next.push(undefined) }
    state.next[byte] = found
    return found
  }

  const open = (set: FrameSet): State => set.opened ??= close(set.frames, set.ends)

  return {
    start: close([{ rule, state: 0, count: 0, parents: root }]),
    step,
    stepToken: (state, id) => orNull(afterToken(state, id)),
    either: (a, b) => stateOf([...a.frames, ...b.frames], a.accepting || b.accepting),
    placeOf: ({ count, rule, state }) => frames.place(rule, state, count),
    open,
    detach: (some) => stateOf(some.map((frame) => frameOf({ ...frame, parents: root })), false),
    root,
    size: () => states.size,
    forget: () => {
      frames.forget()
      states.clear()
    }
  }
}

/** The epsilon closure of places: the frames that read next, and whether the text may also end here. */
const closure = (
  { frameOf, setOf }: Frames.Frames,
  items: ReadonlyArray<Item>,
  ends: boolean
): { readonly kept: ReadonlyArray<Frame>; readonly accepting: boolean } => {
  const seen = new Set<number>()
  const kept: Array<Frame> = []
  let accepting = ends
  const queue: Array<Item> = [...items]
  const pop = (parents: FrameSet): void => {
    if (parents.ends) accepting = true
    queue.push(...parents.frames)
  }
  for (let item = queue.pop(); item !== undefined; item = queue.pop()) {
    const frame = frameOf(item)
    if (seen.has(frame.id)) continue
    seen.add(frame.id)
    const { rule } = frame
    if (rule._tag === "Leaf") {
      if (rule.accept[frame.state] === 1) pop(frame.parents)
      if (goesOn(rule, frame.state)) kept.push(frame)
      continue
    }
    const state = rule.states[frame.state]!
    if (state.bytes.length > 0 || state.tokens.length > 0) kept.push(frame)
    for (const [guard, target] of state.empty) {
      const count = counted(rule, guard, frame.count)
      if (count >= 0) queue.push({ rule, state: target, count, parents: frame.parents })
    }
    for (const [callee, target] of state.calls) {
      // a tail call leaves no frame: the callee ends where the caller would
      const parents = isLast(rule, target)
        ? frame.parents
        : setOf([frameOf({ rule, state: target, count: frame.count, parents: frame.parents })], false)
      queue.push({ rule: callee, state: 0, count: 0, parents })
    }
    if (state.accept) pop(frame.parents)
  }
  return { kept, accepting }
}

/** The places after a byte. */
const afterByte = (state: State, byte: number): ReadonlyArray<Item> => {
  const items: Array<Item> = []
  for (const { count, parents, rule, state: from } of state.frames) {
    if (rule._tag === "Leaf") {
      const to = rule.next[from * rule.width + rule.classOf[byte]!]!
      if (to < 0) continue
      const counter = rule.counter
      if (counter === undefined) items.push({ rule, state: to, count: 0, parents })
      else {
        const after = countedCharacter(counter, from, to, byte, count)
        if (after >= 0) items.push({ rule, state: to, count: after, parents })
      }
      continue
    }
    for (const [low, high, target] of rule.states[from]!.bytes) {
      if (low <= byte && byte <= high) items.push({ rule, state: target, count, parents })
    }
  }
  return items
}

/** The places after a token that the grammar names by its id. */
const afterToken = (state: State, id: number): ReadonlyArray<Item> =>
  state.frames.flatMap(({ count, parents, rule, state: from }) =>
    rule._tag === "Leaf" ?
      [] :
      rule.states[from]!.tokens.flatMap(([token, target]) =>
        token === id ? [{ rule, state: target, count, parents }] : []
      )
  )

const goesOn = (leaf: Leaf, state: number): boolean => {
  for (let c = 0; c < leaf.width; c++) if (leaf.next[state * leaf.width + c]! >= 0) return true
  return false
}

/** Whether the only thing to do in a state is to end the rule. */
const isLast = (net: Net, target: number): boolean => {
  const { accept, bytes, calls, empty, tokens } = net.states[target]!
  return accept && bytes.length === 0 && calls.length === 0 && empty.length === 0 && tokens.length === 0
}

/** The count after an epsilon edge; -1 if it may not be taken. Counts that no guard distinguishes are merged. */
const counted = (net: Net, guard: "always" | "enter" | "leave", count: number): number => {
  if (guard === "always") return count
  if (guard === "leave") return count >= net.min ? 0 : -1
  if (count >= net.max) return -1
  return net.max === Infinity ? Math.min(count + 1, net.min) : count + 1
}

const quote = 0x22

/** The number of characters after a byte of a counted string; -1 if the bounds forbid the byte. */
const countedCharacter = (
  counter: NonNullable<Leaf["counter"]>,
  from: number,
  to: number,
  byte: number,
  count: number
): number => {
  if (counter.boundary[from] === 0) {
    return count + counter.distance[to]! <= counter.max ? count : -1
  }
  if (byte === quote) return count >= counter.min ? 0 : -1
  // without a maximum all counts from the minimum on are merged
  if (counter.max === Infinity) return Math.min(count + 1, counter.min)
  return count + 1 + counter.distance[to]! <= counter.max ? count + 1 : -1
}
