/** For pages without a bundler that want the engine as Effect's `LanguageModel`: what of Effect they need for that comes along. */
export * as Chat from "effect/ai/Chat"
export * as LanguageModel from "effect/ai/LanguageModel"
export * as Effect from "effect/Effect"
export * as Stream from "effect/Stream"
export * as AiModel from "./AiModel.ts"
