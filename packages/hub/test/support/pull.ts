/** Pulls the name in the first argument into the folder of the second; prints how many bytes are there as they come. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import * as Http from "../../src/Http.ts"
import { parse } from "../../src/ModelName.ts"
import * as NodeMachine from "../../src/NodeMachine.ts"
import { Store } from "../../src/Store.ts"

const [, , name = "", root = ""] = process.argv

Effect.gen(function*() {
  const { pull } = yield* Store
  const onProgress = ({ doneBytes }: { readonly doneBytes: number }) =>
    Effect.sync(() => void process.stdout.write(`${doneBytes}\n`))
  yield* pull(yield* Effect.fromResult(parse(name)), { onProgress })
}).pipe(
  Effect.provide(
    Store.layer({ root, chunkBytes: 64 * 1024 }).pipe(
      Layer.provide(Http.Http.layer()),
      Layer.provide(Layer.merge(NodeMachine.layer, NodeServices.layer))
    )
  ),
  NodeRuntime.runMain
)
