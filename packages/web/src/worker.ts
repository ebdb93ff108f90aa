/** The script of the worker: serves the page that starts it. */
import { Effect } from "effect"
import * as Host from "./Host.ts"
import { serve } from "./internal/platform.ts"
import * as scheduling from "./internal/scheduling.ts"

Effect.runFork(Host.handlers.pipe(Effect.flatMap(serve), Effect.scoped, Effect.provide(scheduling.layer)))
