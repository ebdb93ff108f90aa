/** What a person has set. It stays in the browser. */

/** The settings, all of them given. */
export interface Settings {
  /** Empty: the server's own choice. */
  readonly model: string
  /** In front of conversations that begin from now on. */
  readonly system: string
  readonly temperature: number
  readonly topP: number
  readonly maxTokens: number
  readonly thinking: boolean
  readonly speed: boolean
  readonly theme: "system" | "light" | "dark"
  readonly apiKey: string
}

/** The settings of somebody who has set nothing. */
export const usual: Settings = {
  model: "",
  system: "",
  temperature: 0,
  topP: 1,
  maxTokens: 512,
  thinking: false,
  speed: true,
  theme: "system",
  apiKey: ""
}

const isBetween = (least: number, most: number) => (value: unknown): boolean =>
  typeof value === "number" && value >= least && value <= most

const isText = (value: unknown): boolean => typeof value === "string"
const isFlag = (value: unknown): boolean => typeof value === "boolean"

/** What values of a setting make sense. */
export const isValid: { readonly [name in keyof Settings]: (value: unknown) => boolean } = {
  model: isText,
  system: isText,
  temperature: isBetween(0, 2),
  topP: (value) => isBetween(0, 1)(value) && value !== 0,
  maxTokens: (value) => Number.isInteger(value) && isBetween(1, 1_000_000)(value),
  thinking: isFlag,
  speed: isFlag,
  theme: (value) => value === "system" || value === "light" || value === "dark",
  apiKey: isText
}

/** Reads what a browser has kept; what makes no sense is as usual. */
export const fromStored = (text: string | null): Settings => {
  let stored: unknown
  try {
    stored = JSON.parse(text ?? "{}")
  } catch {
    return usual
  }
  if (typeof stored !== "object" || stored === null) return usual
  const known = Object.entries(stored).filter(([name, value]) =>
    Object.hasOwn(isValid, name) && isValid[name as keyof Settings](value)
  )
  return { ...usual, ...Object.fromEntries(known) }
}
