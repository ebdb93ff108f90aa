/**
 * What a terminal sends, before the line editor sees it: line breaks that do not end a line (pasted, or Alt+Enter) become
 * one visible character, and input behind the end of a line waits for the next one.
 */

/** Stands for a line break inside of a line that is edited. */
const lineBreak = "\u2424"
/** Stands for a tab there, where the key completes a word. */
const tab = "\u2409"

const pasteStart = "\x1b[200~"
const pasteEnd = "\x1b[201~"

/** Tell a terminal to mark what is pasted, and to stop it. */
export const [markPastes, leavePastes] = ["\x1b[?2004h", "\x1b[?2004l"]

/** A text as it was meant. */
export const toText = (line: string): string => line.replaceAll(lineBreak, "\n").replaceAll(tab, "\t")

/** A text to edit in one line. */
export const toLine = (text: string): string => text.replace(/\r\n?|\n/g, lineBreak).replaceAll("\t", tab)

/** Input for the editor, and what waits. */
export interface Taken {
  readonly keys: string
  readonly rest: string
  /** Whether the keys end a line. */
  readonly isLine: boolean
}

/** Takes from the input what the editor is to have now: up to the end of a line, if there is one. */
export const take = (input: string): Taken => {
  let keys = ""
  let at = 0
  while (at < input.length) {
    const rest = input.slice(at)
    if (rest.startsWith(pasteStart)) {
      const end = rest.indexOf(pasteEnd)
      if (end < 0) return { keys, rest, isLine: false }
      keys += harmless(rest.slice(pasteStart.length, end))
      at += end + pasteEnd.length
    } else if (rest.startsWith("\x1b\r") || rest.startsWith("\x1b\n")) {
      keys += lineBreak
      at += 2
    } else if (pasteStart.startsWith(rest)) {
      // the beginning of something longer
      return { keys, rest, isLine: false }
    } else {
      keys += input[at]!
      at++
      if (rest[0] === "\r" || rest[0] === "\n") {
        const isPair = rest.startsWith("\r\n")
        return { keys, rest: input.slice(isPair ? at + 1 : at), isLine: true }
      }
    }
  }
  return { keys, rest: "", isLine: false }
}

/** What is pasted is text: it holds no keys. */
const harmless = (pasted: string): string => toLine(pasted).replace(/\p{Cc}/gu, "")
