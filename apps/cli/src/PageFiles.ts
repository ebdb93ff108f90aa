/** Where the chat page lies. */
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { Effect, Schema } from "effect"

/** The page could not be built from its sources. */
export class PageNotBuilt extends Schema.TaggedError<PageNotBuilt>()("PageNotBuilt", { reason: Schema.String }) {
  override get message(): string {
    return `the chat page could not be built: ${this.reason}; --no-page serves without it`
  }
}

// beside a bundled program; in the workspace it is built when its sources have changed
const bundled = fileURLToPath(new URL("./page/", import.meta.url))

/** The folder with the page's files. */
export const folder: Effect.Effect<string, PageNotBuilt> = Effect.suspend(() =>
  existsSync(bundled) ? Effect.succeed(bundled) : Effect.tryPromise({
    try: async () => (await import("@tg/page/Build")).built(),
    catch: (cause) => new PageNotBuilt({ reason: cause instanceof Error ? cause.message : String(cause) })
  })
)
