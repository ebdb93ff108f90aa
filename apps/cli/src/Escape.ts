/** Text of files and models on a terminal: what would steer the terminal is written out. */

/** C0 but for line end and tab, DEL and C1, and what turns the direction of text round. */
// oxlint-disable-next-line no-control-regex -- these are what it is about
const steering = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

const written = (character: string): string => {
  const code = character.charCodeAt(0)
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`
}

/** Lines and tabs stay; other control characters are written as `\x1b`. */
export const text = (given: string): string => given.replace(steering, written)

/** A text that stays in its line, whatever is in it. */
export const line = (given: string): string => text(given).replace(/\n/g, "\\n").replace(/\t/g, "\\t")

/** The same value in JSON, with such characters written as `\u001b`. */
export const json = (given: string): string =>
  given.replace(steering, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`)
