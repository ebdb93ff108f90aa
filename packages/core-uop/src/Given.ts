/** Services from outside in place of the usual ones. */
import { type Context, Effect, Layer, Option } from "effect"

/**
 * The service of the context, or the usual one where the context has none. So a service that is provided outside of a program
 * reaches every part of it that builds its own layers.
 */
export const given = <I, S, E, R>(service: Context.Key<I, S>, usual: Layer.Layer<I, E, R>): Layer.Layer<I, E, R> =>
  Layer.unwrap(Effect.map(
    Effect.serviceOption(service),
    Option.match({ onNone: () => usual, onSome: (found) => Layer.succeed(service, found) })
  ))
