export * as AiModel from "./AiModel.ts"
export * as Conversation from "./Conversation.ts"
export * as Parts from "./Parts.ts"
