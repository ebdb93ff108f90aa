/** How much one client, and all together, may ask of the server. */

/** The limits of a server. */
export interface Limits {
  /** Bytes of one request's body. */
  readonly bodyBytes: number
  /** Bytes of all bodies that are being read at the same time. */
  readonly heldBytes: number
  /** How long a body may take to arrive, in seconds. */
  readonly bodySeconds: number
  /** How deep arrays and objects may be nested. */
  readonly depth: number
  /** Messages of a conversation, prompts of a completion. */
  readonly messages: number
  /** Answers to one request: `n`, times its prompts. */
  readonly choices: number
  /** How long a request may wait and be answered, in seconds. */
  readonly requestSeconds: number
  /** Requests that are answered at the same time. */
  readonly parallel: number
  /** Requests that may wait for their turn. */
  readonly queue: number
}

/** What applies where nothing else is said. */
export const defaults: Limits = {
  bodyBytes: 8 * 2 ** 20,
  heldBytes: 64 * 2 ** 20,
  bodySeconds: 30,
  depth: 64,
  messages: 2048,
  choices: 16,
  requestSeconds: 600,
  parallel: 1,
  queue: 64
}
