/** The page with the engine inside. */
import { effect } from "@preact/signals"
import { mount } from "@tg/page/Page"
import * as State from "@tg/page/State"
import { remembered } from "./Choice.ts"
import * as Local from "./Local.ts"
import { backend } from "./LocalBackend.ts"
import * as Offline from "./Offline.ts"
import { Notice } from "./view/Notice.tsx"
import { Status } from "./view/Status.tsx"

const start = async (): Promise<void> => {
  await Offline.start()
  await Local.use(remembered())
  await Offline.keep()
}

mount(document.getElementById("app")!, {
  backend,
  parts: {
    where: "runs in this page. What you write stays on your device.",
    isServer: false,
    Notice,
    Status
  }
})
effect(() => {
  if (Local.phase.value.at === "ready") void State.findModels()
})
void start()
