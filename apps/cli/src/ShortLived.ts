/** Commands that compute for seconds and end. */
import { Effect } from "effect"
import * as v8 from "node:v8"

/**
 * Leaves out V8's last tier (TurboFan) from here on. In a process of a few seconds it ends up compiling most of what runs, on other
 * cores and hardly ever in time: `plan` of GLM took 9.4 s of CPU with it and 5.5 s without, in the same time. An engine that does
 * not know the flag says so and goes on.
 */
export const withoutLastTier: Effect.Effect<void> = Effect.sync(() => v8.setFlagsFromString("--max-opt=2"))
