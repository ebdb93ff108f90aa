export * as Messages from "./Messages.ts"
export * as Reply from "./Reply.ts"
export * as ReplyStyle from "./ReplyStyle.ts"
export * as Tool from "./Tool.ts"
