/** Where the page with the engine inside lies. */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import { UsageError } from "./Report.ts"

// beside a bundled program; in the workspace it is built when its sources have changed
const bundled = fileURLToPath(new URL("./site/", import.meta.url))

/** The folder with the page's files. */
export const folder: Effect.Effect<string, UsageError> = Effect.suspend(() =>
  existsSync(bundled) ? Effect.succeed(bundled) : Effect.tryPromise({
    try: async () => (await import("@tg/web-page/Build")).built(),
    catch: (cause) =>
      new UsageError({
        message: `the page could not be built: ${
          cause instanceof Error ? cause.message : String(cause)
        }; --folder names one that was built before`
      })
  })
)
