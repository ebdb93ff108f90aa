/** Text in segments: what may be a special token, and what never is. */

/** A part of a prompt: the text of one special token, or ordinary text. */
export interface Segment {
  readonly type: "special" | "text"
  readonly text: string
}

/** An ordinary text. */
export const text = (text: string): Segment => ({ type: "text", text })

/** A special token, by its text. */
export const special = (text: string): Segment => ({ type: "special", text })

/** The text of all segments. */
export const toText = (segments: ReadonlyArray<Segment>): string => segments.map((segment) => segment.text).join("")

/**
 * Cuts a text at every occurrence of the given marks, which come in order of precedence: all occurrences of the first
 * mark from the left, then those of the second in what is left, and so on. Segments are never empty.
 */
export const cut = (input: string, marks: ReadonlyArray<string>): ReadonlyArray<Segment> => {
  let segments: Array<Segment> = input === "" ? [] : [text(input)]
  for (const mark of marks) {
    if (mark !== "" && input.includes(mark)) segments = segments.flatMap((segment) => cutOne(segment, mark))
  }
  return segments
}

const cutOne = (segment: Segment, mark: string): ReadonlyArray<Segment> => {
  if (segment.type === "special" || !segment.text.includes(mark)) return [segment]
  const found = special(mark)
  return segment.text.split(mark).flatMap((part, index) => [
    ...(index === 0 ? [] : [found]),
    ...(part === "" ? [] : [text(part)])
  ])
}
