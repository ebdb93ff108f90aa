/** What was typed in earlier chats: one JSON text a line, in the user's folder for state, readable by the user alone. */
import { Effect, FileSystem, Path } from "effect"
import * as UserDirectories from "effect/persistence/UserDirectories"

/** How many are kept. */
export const most = 1000

/** What was typed. */
export interface History {
  /** The latest first. */
  readonly lines: () => ReadonlyArray<string>
  readonly add: (line: string) => Effect.Effect<void>
}

/** A history that is forgotten with the chat. */
export const inMemory = (): History => {
  let lines: ReadonlyArray<string> = []
  return {
    lines: () => lines,
    add: (line) =>
      Effect.sync(() => {
        lines = withLine(lines, line)
      })
  }
}

/** The history of this user. Without a place for it there is one for this chat alone: it is no reason not to talk. */
export const open: Effect.Effect<History, never, FileSystem.FileSystem | Path.Path> = Effect.gen(function*() {
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const folder = yield* UserDirectories.make().state("tg")
  yield* files.makeDirectory(folder, { recursive: true })
  const file = path.join(folder, "chat-history.jsonl")
  const text = (yield* files.exists(file)) ? yield* files.readFileString(file) : ""
  const kept = text.split("\n").flatMap(lineOf).reduce(withLine, [] as ReadonlyArray<string>)
  const memory = inMemory()
  for (const line of kept.toReversed()) yield* memory.add(line)
  // only once in a while, so that two chats seldom do it at the same time
  if (text.split("\n").length > 2 * most) {
    yield* files.writeFileString(file, kept.toReversed().map(written).join(""), { mode: 0o600 })
  }
  return {
    lines: memory.lines,
    add: (line: string) =>
      Effect.andThen(
        memory.add(line),
        Effect.ignore(files.writeFileString(file, written(line), { flag: "a", mode: 0o600 }))
      )
  }
}).pipe(Effect.orElseSucceed(inMemory))

const written = (line: string): string => `${JSON.stringify(line)}\n`

const withLine = (lines: ReadonlyArray<string>, line: string): ReadonlyArray<string> =>
  line.trim() === "" ? lines : [line, ...lines.filter((other) => other !== line)].slice(0, most)

/** The text of a line of the file; none if something else wrote it. */
const lineOf = (json: string): ReadonlyArray<string> => {
  try {
    const line: unknown = JSON.parse(json)
    return typeof line === "string" ? [line] : []
  } catch {
    return []
  }
}
