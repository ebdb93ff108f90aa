/** Services that stand in for usual ones, without a word from the layers in between. */
import { type Context, Effect, Layer, Option } from "effect"

/**
 * The service that the context has already; only where it has none, the usual one. What a program is given from outside so
 * reaches every part of it that makes its own layers.
 */
export const given = <I, S, E, R>(service: Context.Key<I, S>, usual: Layer.Layer<I, E, R>): Layer.Layer<I, E, R> =>
  Layer.unwrap(Effect.map(
    Effect.serviceOption(service),
    Option.match({ onNone: () => usual, onSome: (found) => Layer.succeed(service, found) })
  ))
