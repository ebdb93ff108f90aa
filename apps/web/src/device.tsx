/** The page about this device: whether it computes what it should, and how fast it is. */
import { render } from "preact"
import * as Offline from "./Offline.ts"
import * as Trials from "./Trials.ts"
import { Device } from "./view/Device.tsx"

const start = async (): Promise<void> => {
  await Offline.start()
  await Trials.recall()
}

render(<Device />, document.getElementById("app")!)
void start()
