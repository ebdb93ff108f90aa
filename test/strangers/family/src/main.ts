import { parrot } from "./parrot.ts"
import { say } from "./say.ts"

process.stdout.write(`${JSON.stringify(await say("hello", [parrot]))}\n`)
