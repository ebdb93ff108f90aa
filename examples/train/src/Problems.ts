/** Additions as sequences of tokens, and the random numbers that choose them. */

/** Numbers from 0 to 1, equal for equal seeds. */
export const random = (seed: number): () => number => {
  let state = (seed ^ 0x9e3779b9) >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let x = Math.imul(state ^ (state >>> 15), state | 1)
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61)
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32
  }
}

/** A question and its answer. */
export interface Problem {
  readonly question: string
  readonly answer: string
}

/** The sum of two numbers. */
export const addition = (a: number, b: number): Problem => ({ question: `${a}+${b}`, answer: `${a + b}` })

/** All sums of two numbers with at most so many digits: those to learn from, and every tenth (by chance) to be asked. */
export const additions = (digits: number, seed: number) => {
  const next = random(seed)
  const most = 10 ** digits
  const learnt: Array<Problem> = []
  const asked: Array<Problem> = []
  for (let a = 0; a < most; a++) {
    for (let b = 0; b < most; b++) (next() < 0.1 ? asked : learnt).push(addition(a, b))
  }
  return { learnt, asked }
}

/** The special tokens of a conversation. */
export interface Turns {
  readonly user: number
  readonly assistant: number
}

/** A batch as the program takes it: sequences one behind the other. */
export interface Batch {
  readonly tokens: Uint32Array
  /** The token behind each. */
  readonly targets: Uint32Array
  /** 1 where the target belongs to an answer: only these count. */
  readonly counts: Float32Array
}

/** Tokens that the longest sequence of this many digits takes: three marks, the question, the answer; even. */
export const sequenceLength = (digits: number): number => 2 * Math.ceil((3 + 2 * digits + 1 + digits + 1) / 2)

/** A turn of each speaker, and the mark that begins the next: bytes are their own tokens. */
const tokensOf = ({ answer, question }: Problem, { assistant, user }: Turns): ReadonlyArray<number> => [
  user,
  ...new TextEncoder().encode(question),
  assistant,
  ...new TextEncoder().encode(answer),
  user
]

/** The batch of some problems, each in `length` tokens. */
export const batchOf = (problems: ReadonlyArray<Problem>, turns: Turns, length: number): Batch => {
  const size = problems.length * length
  const batch = { tokens: new Uint32Array(size), targets: new Uint32Array(size), counts: new Float32Array(size) }
  problems.forEach((problem, i) => {
    const tokens = tokensOf(problem, turns)
    const start = i * length
    batch.tokens.set(tokens, start)
    batch.targets.set(tokens.slice(1), start)
    batch.counts.fill(1, start + problem.question.length + 1, start + tokens.length - 1)
  })
  return batch
}
