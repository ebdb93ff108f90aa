/** JSON that a stranger has sent. */

/** Whether arrays and objects are nested deeper than `limit`. Looks at brackets alone: what is no JSON is refused by its parser. */
export const isDeeper = (text: string, limit: number): boolean => {
  let depth = 0
  let isString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (isString) {
      if (code === backslash) i++
      else if (code === quote) isString = false
    } else if (code === quote) isString = true
    else if (code === openBracket || code === openBrace) {
      if (++depth > limit) return true
    } else if (code === closeBracket || code === closeBrace) depth--
  }
  return false
}

const quote = 0x22
const backslash = 0x5c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** A text that fits into an error: cut after so many characters. */
export const short = (text: string, length = 200): string =>
  text.length <= length ? text : `${text.slice(0, length).toWellFormed()}...`
