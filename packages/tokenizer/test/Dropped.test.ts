/** Which messages a template leaves out. */
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as ChatTemplate from "../src/ChatTemplate.ts"
import { droppedMessage } from "../src/Dropped.ts"
import { smallCodec } from "./support/files.ts"

const codec = smallCodec({})
const dropped = (source: string, messages: ReadonlyArray<ChatTemplate.Message>) => {
  const template = Result.getOrThrow(ChatTemplate.fromSource(source, codec))
  return droppedMessage(messages, (messages) => template.render({ messages }, new Date(0)))?.message
}
const user = { role: "user", content: "hi" }
const narrator = { role: "narrator", content: "it rains" }

describe("droppedMessage", () => {
  const knowsTwo =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% endif %}{% endfor %}"
  it("is none of those that are printed", () => assert.isUndefined(dropped(knowsTwo, [user, user])))
  it("is one of a role that the template does not know", () =>
    assert.strictEqual(
      dropped(knowsTwo, [user, narrator]),
      "message 2 has the role \"narrator\", and the model's chat template drops it; its roles are user, assistant"
    ))
  it("is the user's where the template prints no message", () =>
    assert.strictEqual(
      dropped("{{ messages | length }} messages", [user]),
      "message 1 has the role \"user\", and the model's chat template drops it; it prints messages of no role at all"
    ))
  it("is none of those that are printed in another way", () =>
    assert.isUndefined(dropped("{{ messages[0].content | upper }}{{ messages[1].content[::-1] }}", [user, user])))
  it("is not known of a message with more than a content, and where the template fails", () => {
    assert.isUndefined(dropped(knowsTwo, [user, { ...narrator, name: "n" }]))
    assert.isUndefined(dropped("{{ raise_exception('no') if messages[0].content != 'hi' }}", [user]))
  })
})
