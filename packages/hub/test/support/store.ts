/** Stores in folders that go away with the test. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Result } from "effect"
import * as Http from "../../src/Http.ts"
import { parse } from "../../src/ModelName.ts"
import * as NodeMachine from "../../src/NodeMachine.ts"
import { type Listener, type Options, Store } from "../../src/Store.ts"

/** A folder of its own. */
export const folder = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "tg-hub-"))),
  (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
)

/** Tries again at once, so that tests are quick. */
export const quick: Http.Options = { stallMillis: 10_000, backoffMillis: 5, attempts: 6 }

/** Waits for nobody. */
export const impatient: Http.Options = { ...quick, stallMillis: 300 }

/** A store whose chunks are small. */
export const layer = (options: Options, http: Http.Options = {}) =>
  Store.layer({ chunkBytes: 16 * 1024, ...options }).pipe(
    Layer.provideMerge(Http.Http.layer({ ...quick, ...http })),
    Layer.provideMerge(Layer.merge(NodeMachine.layer, NodeServices.layer))
  )

export const nameOf = (text: string) => Result.getOrThrow(parse(text))

/** Pulls by name. */
export const pull = (text: string, listener: Listener = {}) =>
  Effect.flatMap(Store, (store) => store.pull(nameOf(text), listener))
