/** Ends a text before the first of some strings, whose characters may come with different tokens. */

/** A text on its way to the reader. What may still become a stop string is held back. */
export interface StopText {
  /** Takes more text; gives what can be shown, and whether a stop string stood behind it. */
  readonly push: (text: string) => { readonly text: string; readonly isStopped: boolean }
  /** What was held back: there is no more text. */
  readonly flush: () => string
}

/** Watches for the strings, none of which is empty. Of two that begin at the same place, either ends the text there. */
export const make = (stops: ReadonlyArray<string>): StopText => {
  let held = ""
  return {
    push: (text) => {
      const whole = held + text
      const at = firstOf(whole, stops)
      const shown = at ?? whole.length - beginning(whole, stops)
      held = at === undefined ? whole.slice(shown) : ""
      return { text: whole.slice(0, shown), isStopped: at !== undefined }
    },
    flush: () => {
      const rest = held
      held = ""
      return rest
    }
  }
}

/** Where the first of the strings begins. */
const firstOf = (text: string, stops: ReadonlyArray<string>): number | undefined => {
  const found = stops.map((stop) => text.indexOf(stop)).filter((at) => at >= 0)
  return found.length === 0 ? undefined : Math.min(...found)
}

/** Length of the longest end of the text that a string begins with. */
const beginning = (text: string, stops: ReadonlyArray<string>): number => {
  const most = Math.min(text.length, Math.max(0, ...stops.map((stop) => stop.length - 1)))
  for (let length = most; length > 0; length--) {
    const end = text.slice(text.length - length)
    if (stops.some((stop) => stop.startsWith(end))) return length
  }
  return 0
}
