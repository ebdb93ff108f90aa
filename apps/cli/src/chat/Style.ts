/** How a chat looks: dimmed asides, and nothing in a text that a terminal would obey. */
import * as Escape from "../Escape.ts"

/** Where a chat is written to. */
export interface Style {
  /** Whether that is a terminal, where some characters do things. */
  readonly isTerminal: boolean
  /** Whether it may be told to change how letters look. */
  readonly hasColors: boolean
}

/** What a terminal can do, by its environment: `NO_COLOR` (any text) and `TERM=dumb` leave plain letters. */
export const styleOf = (
  isTerminal: boolean,
  environment: Readonly<Record<string, string | undefined>>
): Style => ({
  isTerminal,
  hasColors: isTerminal && (environment["NO_COLOR"] ?? "") === "" && environment["TERM"] !== "dumb"
})

/** A generated text: as it is, but for a terminal without what would steer it. */
export const visible = (text: string, { isTerminal }: Style): string => isTerminal ? Escape.text(text) : text

/** A dimmed text, where that is possible. */
export const dim = (text: string, { hasColors }: Style): string =>
  hasColors && text !== "" ? `\x1b[2m${text}\x1b[22m` : text
