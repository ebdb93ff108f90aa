/** A graph-structured stack: frames and sets of frames that share their parents, hash-consed. */
import type { Rule } from "./rule.ts"

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

/** A frame before it is made. */
export interface Item {
  readonly rule: Rule
  readonly state: number
  readonly count: number
  readonly parents: FrameSet
}

/** Makes frames and their sets. */
export interface Frames {
  /** A number for what is made here or with what is: no other has it. */
  readonly freshId: () => number
  /** The number of a place: a rule, a state of it and a count. */
  readonly place: (rule: Rule, state: number, count: number) => number
  readonly frameOf: (item: Item) => Frame
  readonly setOf: (frames: ReadonlyArray<Frame>, ends: boolean) => FrameSet
  /** Joins the parents of frames at the same place; sorted. */
  readonly normalise: (frames: ReadonlyArray<Frame>) => ReadonlyArray<Frame>
  /** What follows the whole grammar: nothing. */
  readonly root: FrameSet
  /** Drops memoised frames that nothing holds. */
  readonly forget: () => void
}

/** States that all rules together may have: far more than compiling gives. */
const maxPlaces = 2 ** 24

/** The number of a place, by the rule's number and those of its states. */
const placer = () => {
  const firstPlaces = new Map<Rule, number>()
  let places = 0
  // states of all rules are numbered through; no text is so long that a count would need more than the bits above
  return (rule: Rule, state: number, count: number): number => {
    let first = firstPlaces.get(rule)
    if (first === undefined) {
      first = places
      places += rule._tag === "Leaf" ? rule.accept.length : rule.states.length
      firstPlaces.set(rule, first)
    }
    return first + state + count * maxPlaces
  }
}

/** Makes frames of one machine. */
export const make = (): Frames => {
  let ids = 0
  const freshId = (): number => ids++
  const place = placer()
  const sets = new Map<string, FrameSet>()

  const newSet = (frames: ReadonlyArray<Frame>, ends: boolean): FrameSet => ({
    id: ids++,
    frames,
    ends,
    children: new Map(),
    opened: undefined
  })
  const root = newSet([], true)

  const frameOf = ({ count, parents, rule, state }: Item): Frame => {
    const key = place(rule, state, count)
    const known = parents.children.get(key)
    if (known !== undefined) return known
    const frame: Frame = { id: ids++, rule, state, count, parents }
    parents.children.set(key, frame)
    return frame
  }

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

  return {
    freshId,
    place,
    frameOf,
    setOf,
    normalise,
    root,
    forget: () => {
      sets.clear()
      root.children.clear()
    }
  }
}

/** A key of frames that are sorted: equal for equal lists. */
export const keyOf = (frames: ReadonlyArray<Frame>, ends: boolean): string => {
  let key = ends ? "!" : ""
  for (const frame of frames) key += `${frame.id},`
  return key
}
