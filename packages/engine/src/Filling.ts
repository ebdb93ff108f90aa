/** A session's cache, filled with what another one holds, or a snapshot; and a snapshot of it. */
import type { DeviceBuffer, DeviceError } from "@tg/runtime/Device"
import { Effect } from "effect"
import * as CacheCopy from "./CacheCopy.ts"
import * as Rings from "./Rings.ts"
import { invalid, keep, rowsOf, type SessionState, type StepError } from "./SessionState.ts"
import { commonPrefix } from "./Tokens.ts"

/** What a session holds, off the device: its tokens, and their rows of each cache. */
export interface Snapshot {
  readonly tokens: ReadonlyArray<number>
  readonly rows: ReadonlyArray<Uint8Array>
  /** As in a session. */
  readonly forgotten: number
}

/** What another session begins with. */
export interface Source {
  readonly tokens: () => ReadonlyArray<number>
  readonly forgotten: () => number
  readonly caches: ReadonlyArray<DeviceBuffer>
}

/**
 * Holds no tokens while something fills the cache, and then the first so many, if the next one can be computed behind them.
 * `source` says what is gone before it is copied, and after: it may be at work meanwhile.
 */
const filled = Effect.fnUntraced(function*(
  state: SessionState,
  { count, source }: { readonly source: Omit<Source, "caches">; readonly count: number },
  fill: (rows: CacheCopy.Rows) => Effect.Effect<void, DeviceError>
) {
  const gone = source.forgotten()
  const tokens = source.tokens().slice(0, count)
  const error = tokens.length === 0 ? undefined : invalid(state, tokens)
  if (error !== undefined) return yield* error
  keep(state, 0)
  if (Rings.usable(state.ring, gone, tokens.length) === 0) return
  yield* fill(rowsOf(state, gone, tokens.length))
  // what the other one has replaced meanwhile may have been copied before or after
  const shared = commonPrefix(tokens, source.tokens())
  state.forgotten = Math.max(gone, source.forgotten())
  state.held = tokens.slice(0, Rings.usable(state.ring, state.forgotten, shared))
})

/** Begins with the first so many tokens of another session of the same model and kind of cache. */
export const adopt = (state: SessionState, source: Source, count: number): Effect.Effect<void, StepError> =>
  filled(
    state,
    { source, count },
    (rows) => CacheCopy.copyRows(state.device, { from: source.caches, to: state.caches }, rows)
  )

/** The tokens, and what the cache holds of them. */
export const snapshot = (state: SessionState): Effect.Effect<Snapshot, StepError> =>
  Effect.suspend(() => {
    const { forgotten, held: tokens } = state
    const rows = CacheCopy.readRows(state.device, state.caches, rowsOf(state, forgotten, tokens.length))
    return Effect.map(rows, (rows) => ({ tokens, rows, forgotten }))
  })

/** Begins with the first so many tokens of a snapshot. */
export const restore = (
  state: SessionState,
  { forgotten, rows: from, tokens }: Snapshot,
  count: number
): Effect.Effect<void, StepError> =>
  filled(
    state,
    { source: { tokens: () => tokens, forgotten: () => forgotten }, count },
    (rows) => CacheCopy.writeRows(state.device, { from, to: state.caches }, rows)
  )
