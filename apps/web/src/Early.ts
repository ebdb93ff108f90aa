/** What the first answer waits for longest, begun by a script of its own (`boot.ts`) before the modules of the page are there. */

/** What was begun. Each is taken once. */
export interface Early {
  /** The worker with the engine. */
  worker?: Worker | undefined
  /** The model that comes with the page, on its way. */
  model?: Request | undefined
}

/** A request that can be ended. */
export interface Request {
  readonly response: Promise<Response>
  readonly controller: AbortController
}

declare global {
  /** What was begun before the modules of the page were there. */
  var tgEarly: Early | undefined
}

/** Takes one of them, if it is there. */
export const take = <K extends keyof Early>(what: K): Early[K] => {
  const early = globalThis.tgEarly
  const taken = early?.[what]
  if (early !== undefined) early[what] = undefined
  return taken
}
