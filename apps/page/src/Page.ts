/** The page over a backend, with the parts that are its own. */
import { effect } from "@preact/signals"
import { h, render } from "preact"
import type { Backend } from "./Backend.ts"
import type { Parts } from "./Parts.ts"
import * as State from "./State.ts"
import { App } from "./view/App.tsx"

export type { Parts } from "./Parts.ts"

/** What stands where the server's page has what only servers need. */
export interface Options {
  readonly backend?: Backend | undefined
  readonly parts: Parts
}

/** Shows the page in an element. */
export const mount = (element: Element, { backend, parts }: Options): void => {
  if (backend !== undefined) State.answerWith(backend)
  effect(() => {
    const { theme } = State.settings.value
    if (theme === "system") delete document.documentElement.dataset["theme"]
    else document.documentElement.dataset["theme"] = theme
  })
  render(h(App, { parts }), element)
  void State.start()
}
