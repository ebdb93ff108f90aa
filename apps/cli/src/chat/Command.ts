/** What a line of the user asks for: to say something, or a command that begins with a slash. */

/** How thinking is shown. */
export type Show = "dim" | "fold" | "hide"

/** What is asked for. */
export type Command =
  | { readonly _tag: "Say"; readonly text: string }
  | { readonly _tag: "Help" | "Reset" | "Regenerate" | "Exit" }
  | { readonly _tag: "System"; readonly text: string | undefined }
  | { readonly _tag: "Save"; readonly path: string | undefined; readonly isForced: boolean }
  | { readonly _tag: "Load"; readonly path: string }
  | { readonly _tag: "Model"; readonly name: string | undefined }
  | { readonly _tag: "Stats"; readonly each: boolean | undefined }
  | { readonly _tag: "Thinking"; readonly ask: boolean | undefined; readonly show: Show | undefined }
  | { readonly _tag: "Forget"; readonly turns: number }
  | { readonly _tag: "Wrong"; readonly message: string }

/** The commands, what they take, and what they do. */
export const commands: ReadonlyArray<readonly [name: string, takes: string, does: string]> = [
  ["help", "", "shows this"],
  ["reset", "", "forgets the conversation; the system text stays"],
  ["system", "[TEXT]", "sets the system text, or shows it; /system - removes it"],
  ["save", "[-f] FILE", "writes the conversation, for /load and generate --messages; -f replaces a file"],
  ["load", "FILE", "goes on with a conversation from a file"],
  ["model", "[FILE]", "goes on with another model, or tells which one it is"],
  ["regenerate", "", "answers the last question again"],
  ["thinking", "[on|off|dim|fold|hide]", "whether the model is asked to think first, and how that is shown"],
  ["forget", "[N]", "drops the oldest N questions with their answers (1)"],
  ["stats", "[on|off]", "tokens a second of the last answer; on: after each"],
  ["exit", "", "ends the chat, as do Ctrl-D and Ctrl-C twice"]
]

/** The text of `/help`. */
export const help: string = [
  ...commands.map(([name, takes, does]) => `  ${`/${name} ${takes}`.trimEnd().padEnd(34)}${does}`),
  "A line that ends with \\ goes on in the next; Alt+Enter breaks a line too. // says a text that begins with a slash.",
  "Ctrl-C ends an answer. The arrow keys find what was said before."
].join("\n")

/** Reads what was typed. */
export const parse = (typed: string): Command => {
  if (typed.startsWith("//")) return { _tag: "Say", text: typed.slice(1) }
  const [, name, rest = ""] = /^\/([A-Za-z]+)(?:\s+([^]*))?$/u.exec(typed.trimEnd()) ?? []
  return name === undefined ? { _tag: "Say", text: typed } : parseCommand(name.toLowerCase(), rest.trim())
}

const wrong = (message: string): Command => ({ _tag: "Wrong", message })

const parseCommand = (name: string, rest: string): Command => {
  const text = rest === "" ? undefined : rest
  switch (name) {
    case "help":
      return { _tag: "Help" }
    case "reset":
      return { _tag: "Reset" }
    case "regenerate":
      return { _tag: "Regenerate" }
    case "exit":
    case "quit":
    case "bye":
      return { _tag: "Exit" }
    case "system":
      return { _tag: "System", text }
    case "save": {
      const isForced = /^-f(\s|$)/.test(rest)
      const path = isForced ? rest.slice(2).trim() : rest
      return { _tag: "Save", path: path === "" ? undefined : path, isForced }
    }
    case "load":
      return text === undefined ? wrong("/load needs a file") : { _tag: "Load", path: text }
    case "model":
      return { _tag: "Model", name: text }
    case "stats":
      return text === undefined || text === "on" || text === "off"
        ? { _tag: "Stats", each: text === undefined ? undefined : text === "on" }
        : wrong(`/stats takes on or off, not ${text}`)
    case "thinking":
      return parseThinking(text)
    case "forget": {
      const turns = text === undefined ? 1 : Number(text)
      return Number.isInteger(turns) && turns > 0
        ? { _tag: "Forget", turns }
        : wrong(`/forget takes a number of 1 or more, not ${text}`)
    }
    default:
      return wrong(unknown(name))
  }
}

const parseThinking = (text: string | undefined): Command => {
  switch (text) {
    case undefined:
      return { _tag: "Thinking", ask: undefined, show: undefined }
    case "on":
    case "off":
      return { _tag: "Thinking", ask: text === "on", show: undefined }
    case "dim":
    case "fold":
    case "hide":
      return { _tag: "Thinking", ask: undefined, show: text }
    default:
      return wrong(`/thinking takes on, off, dim, fold or hide, not ${text}`)
  }
}

const unknown = (name: string): string => {
  const nearest = commands.map(([known]) => [known, distance(name, known)] as const).toSorted((a, b) => a[1] - b[1])[0]!
  const hint = nearest[1] <= 2 ? `, did you mean /${nearest[0]}?` : "; /help shows all."
  return `unknown command /${name}${hint} To say it, begin with //`
}

/** How many letters have to be changed, added or left out. */
const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}
