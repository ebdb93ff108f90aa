/** The script of the worker: serves the page that starts it. */
import { Effect, Layer } from "effect"
import { RpcServer } from "effect/rpc"
import * as Host from "./Host.ts"
import { layerWorker } from "./internal/platform.ts"
import * as scheduling from "./internal/scheduling.ts"
import { Requests } from "./Protocol.ts"

const server = RpcServer.layer(Requests).pipe(
  Layer.provide(Host.layer),
  Layer.provide(RpcServer.layerProtocolWorkerRunner),
  Layer.provide(layerWorker)
)

Effect.runFork(Effect.provide(Layer.launch(server), scheduling.layer))
