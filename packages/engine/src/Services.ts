/** What sessions are made with, kept for those that are made later, by whoever asks for one. */
import { Jit } from "@tg/jit/Jit"
import * as Shared from "@tg/jit/Shared"
import { Device } from "@tg/runtime/Device"
import { Context, Effect } from "effect"
import * as Ahead from "./Ahead.ts"
import * as Sampler from "./Sampler.ts"

/** The services of sessions, without a Scope: each session has its own. */
export const ofSessions: Effect.Effect<Context.Context<Device | Jit>, never, Device | Jit> = Effect.gen(function*() {
  const services = Context.pick(Device, Jit)(yield* Effect.context<Device | Jit>())
  return services.pipe(
    Context.add(Sampler.Sampler, yield* Sampler.Sampler),
    Context.add(Shared.BindGroups, yield* Shared.BindGroups),
    Context.add(Ahead.StepsTogether, yield* Ahead.StepsTogether)
  )
})
