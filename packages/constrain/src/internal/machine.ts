/**
 * Runs rules as one automaton: a state is a set of stacks. Stacks share their parents, equal sets are one object, and each
 * state keeps its transitions, so that text that was seen before costs one look-up a byte.
 */
import type { Leaf, Net, Rule } from "./rule.ts"

/** A place in a rule, and where to go on when the rule ends. */
export interface Frame {
  readonly id: number
  readonly rule: Rule
  readonly state: number
  readonly count: number
  readonly parents: FrameSet
}

/** Alternatives of what follows. No two frames have the same place: their parents are joined instead. */
export interface FrameSet {
  readonly id: number
  readonly frames: ReadonlyArray<Frame>
  /** Whether the text may also end here. */
  readonly ends: boolean
  /** The frames that have this set as parents, by place. */
  readonly children: Map<number, Frame>
  /** The state in which one of the frames goes on. */
  opened: State | undefined
}

/** All that may follow a text. */
export interface State {
  readonly id: number
  /** Frames that read a byte or a token next. */
  readonly frames: ReadonlyArray<Frame>
  /** Whether the text may end here. */
  readonly accepting: boolean
  /** The states after each byte, as far as they were asked for; null is failure. */
  readonly next: Array<State | null | undefined>
}

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

interface Item {
  readonly rule: Rule
  readonly state: number
  readonly count: number
  readonly parents: FrameSet
}

/** States that all rules together may have: far more than compiling gives. */
const maxPlaces = 2 ** 24

/** A machine at the beginning of a rule. */
export const make = (rule: Rule): Machine => {
  let ids = 0
  const firstPlaces = new Map<Rule, number>()
  let places = 0
  const sets = new Map<string, FrameSet>()
  const states = new Map<string, State>()

  const newSet = (frames: ReadonlyArray<Frame>, ends: boolean): FrameSet => ({
    id: ids++,
    frames,
    ends,
    children: new Map(),
    opened: undefined
  })
  const root = newSet([], true)

  // states of all rules are numbered through; no text is so long that a count would need more than the bits above
  const place = (rule: Rule, state: number, count: number): number => {
    let first = firstPlaces.get(rule)
    if (first === undefined) {
      first = places
      places += rule._tag === "Leaf" ? rule.accept.length : rule.states.length
      firstPlaces.set(rule, first)
    }
    return first + state + count * maxPlaces
  }

  const frameOf = ({ count, parents, rule, state }: Item): Frame => {
    const key = place(rule, state, count)
    const known = parents.children.get(key)
    if (known !== undefined) return known
    const frame: Frame = { id: ids++, rule, state, count, parents }
    parents.children.set(key, frame)
    return frame
  }

  /** Joins the parents of frames at the same place; sorted. */
  const normalise = (frames: ReadonlyArray<Frame>): ReadonlyArray<Frame> => {
    if (frames.length < 2) return frames
    const byPlace = new Map<number, Frame>()
    for (const frame of frames) {
      const key = place(frame.rule, frame.state, frame.count)
      const other = byPlace.get(key)
      if (other === undefined) byPlace.set(key, frame)
      else if (other !== frame) byPlace.set(key, frameOf({ ...frame, parents: join(other.parents, frame.parents) }))
    }
    return [...byPlace.values()].sort((a, b) => a.id - b.id)
  }

  const setOf = (frames: ReadonlyArray<Frame>, ends: boolean): FrameSet => {
    if (frames.length === 0) return root
    const sorted = normalise(frames)
    const key = keyOf(sorted, ends)
    const known = sets.get(key)
    if (known !== undefined) return known
    const made = newSet(sorted, ends)
    sets.set(key, made)
    return made
  }

  const join = (a: FrameSet, b: FrameSet): FrameSet => a === b ? a : setOf([...a.frames, ...b.frames], a.ends || b.ends)

  /** The state of all that can be read next from these places. */
  const close = (items: ReadonlyArray<Item>, ends = false): State => {
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
        // a call that nothing follows leaves no frame: the callee ends where the caller would
        const parents = isLast(rule, target)
          ? frame.parents
          : setOf([frameOf({ rule, state: target, count: frame.count, parents: frame.parents })], false)
        queue.push({ rule: callee, state: 0, count: 0, parents })
      }
      if (state.accept) pop(frame.parents)
    }
    return stateOf(kept, accepting)
  }

  const stateOf = (frames: ReadonlyArray<Frame>, accepting: boolean): State => {
    const sorted = normalise(frames)
    const key = keyOf(sorted, accepting)
    const known = states.get(key)
    if (known !== undefined) return known
    const made: State = { id: ids++, frames: sorted, accepting, next: [] }
    states.set(key, made)
    return made
  }

  const orNull = (items: ReadonlyArray<Item>): State | null => items.length === 0 ? null : close(items)

  const compute = (state: State, byte: number): State | null => {
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
    return orNull(items)
  }

  const step = (state: State, byte: number): State | null => {
    const known = state.next[byte]
    if (known !== undefined) return known
    const found = compute(state, byte)
    // a plain array of 256: holes would make it a dictionary
    if (state.next.length === 0) { for (let i = 0; i < 256; i++) state.next.push(undefined) }
    state.next[byte] = found
    return found
  }

  const stepToken = (state: State, id: number): State | null =>
    orNull(
      state.frames.flatMap(({ count, parents, rule, state: from }) =>
        rule._tag === "Leaf" ?
          [] :
          rule.states[from]!.tokens.flatMap(([token, target]) =>
            token === id ? [{ rule, state: target, count, parents }] : []
          )
      )
    )

  const open = (set: FrameSet): State => set.opened ??= close(set.frames, set.ends)

  return {
    start: close([{ rule, state: 0, count: 0, parents: root }]),
    step,
    stepToken,
    either: (a, b) => stateOf([...a.frames, ...b.frames], a.accepting || b.accepting),
    placeOf: ({ count, rule, state }) => place(rule, state, count),
    open,
    detach: (frames) => stateOf(frames.map((frame) => frameOf({ ...frame, parents: root })), false),
    root,
    size: () => states.size,
    forget: () => {
      sets.clear()
      states.clear()
      root.children.clear()
    }
  }
}

const keyOf = (frames: ReadonlyArray<Frame>, ends: boolean): string => {
  let key = ends ? "!" : ""
  for (const frame of frames) key += `${frame.id},`
  return key
}

const goesOn = (leaf: Leaf, state: number): boolean => {
  for (let c = 0; c < leaf.width; c++) if (leaf.next[state * leaf.width + c]! >= 0) return true
  return false
}

/** Whether the only thing to do in a state is to end the rule. */
const isLast = (net: Net, target: number): boolean => {
  const { accept, bytes, calls, empty, tokens } = net.states[target]!
  return accept && bytes.length === 0 && calls.length === 0 && empty.length === 0 && tokens.length === 0
}

/** The count after an empty edge; -1 if it may not be taken. Counts that no guard tells apart are one. */
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
  // beyond the minimum all counts are one if there is no maximum
  if (counter.max === Infinity) return Math.min(count + 1, counter.min)
  return count + 1 + counter.distance[to]! <= counter.max ? count + 1 : -1
}
