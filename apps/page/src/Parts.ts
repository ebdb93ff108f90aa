/** Parts of the page that depend on who answers. */
import type { FunctionComponent } from "preact"

/** What differs between a page that asks a server and one that has the model in itself. */
export interface Parts {
  /** Where answers come from, as the end of a sentence that begins with the model's name. */
  readonly where: string
  /** Whether the backend has a choice of models and asks for keys: there are settings for that. */
  readonly isServer: boolean
  /** Beside the title of the conversation. */
  readonly Status?: FunctionComponent | undefined
  /** Between the title and the conversation. */
  readonly Notice?: FunctionComponent | undefined
}

/** The parts of a page that a server serves. */
export const ofServer: Parts = { where: "answers on the machine that serves this page.", isServer: true }
