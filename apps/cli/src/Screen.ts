/** The terminal that messages are shown on, if it is one. */
import { Context } from "effect"

/** What stderr can show. */
export interface Screen {
  /** Whether a line can be written over. */
  readonly canRewrite: boolean
  readonly columns: number
}

/** Where nobody says how wide it is. */
const usualColumns = 80

/** A file, a pipe, or a terminal that knows no escapes. */
export const plain: Screen = { canRewrite: false, columns: usualColumns }

/** The screen of this process; a file if not said. */
export const Screen = Context.Reference<Screen>("@tg/cli/Screen", { defaultValue: () => plain })

/** What a stream of Node's is, with the environment: `TERM=dumb` knows no escapes. */
export const of = (
  stream: { readonly isTTY?: boolean | undefined; readonly columns?: number | undefined },
  environment: Readonly<Record<string, string | undefined>>
): Screen => ({
  canRewrite: stream.isTTY === true && environment["TERM"] !== "dumb",
  columns: stream.columns === undefined || stream.columns < 1 ? usualColumns : stream.columns
})
