/** The page. */
import { effect } from "@preact/signals"
import { render } from "preact"
import * as State from "./State.ts"
import { App } from "./view/App.tsx"

effect(() => {
  const { theme } = State.settings.value
  if (theme === "system") delete document.documentElement.dataset["theme"]
  else document.documentElement.dataset["theme"] = theme
})

render(<App />, document.getElementById("app")!)
void State.start()
