/** The turns of a conversation. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks"
import type { Conversation } from "../Conversation.ts"
import * as State from "../State.ts"
import { Answer } from "./Answer.tsx"
import { Question } from "./Question.tsx"

/** How far from its end a transcript may be scrolled and still follow an answer, in pixels. */
const nearEnd = 80

const suggestions = ["What is 17 + 25?", "Tell me a short story.", "What is the capital of Peru?"]

export const Transcript = ({ conversation, where }: {
  readonly conversation: Conversation
  readonly where: string
}) => {
  const list = useRef<HTMLDivElement>(null)
  const follows = useRef(true)
  useEffect(() => {
    follows.current = true
  }, [conversation.id, conversation.turns.length])
  useLayoutEffect(() => {
    const element = list.current
    if (element !== null && follows.current) element.scrollTop = element.scrollHeight
  })
  const isAnswering = State.isAnswering.value
  return (
    <div
      class="transcript"
      ref={list}
      role="log"
      aria-label="Conversation"
      // read out when it is whole, not word by word
      aria-busy={isAnswering}
      tabIndex={0}
      onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) =>
        follows.current = scrollHeight - scrollTop - clientHeight < nearEnd}
    >
      <div class="turns">
        {conversation.turns.length === 0 && State.isKnown.value ? <Welcome where={where} /> : null}
        {conversation.turns.map((turn, i) =>
          turn.role === "user"
            ? <Question key={turn.id} turn={turn} canEdit={!isAnswering} />
            : (
              <Answer
                key={turn.id}
                turn={turn}
                isLast={i === conversation.turns.length - 1}
                isComing={isAnswering && i === conversation.turns.length - 1}
              />
            )
        )}
      </div>
    </div>
  )
}

const Welcome = ({ where }: { readonly where: string }) => (
  <div class="welcome">
    <h2>What would you like to know?</h2>
    <p>{State.models.value[0] ?? "A language model"} {where}</p>
    <div class="suggestions">
      {suggestions.map((text) => <button type="button" key={text} onClick={() => State.ask(text)}>{text}</button>)}
    </div>
  </div>
)
