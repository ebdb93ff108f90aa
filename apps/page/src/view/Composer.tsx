/** Where questions are written. */
import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import * as State from "../State.ts"
import { IconButton } from "./Icon.tsx"

/** Grows with the text, up to what the style allows. */
const fit = (area: HTMLTextAreaElement): void => {
  area.style.height = "auto"
  area.style.height = `${area.scrollHeight + 2}px`
}

export const Composer = () => {
  const text = useSignal("")
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => area.current?.focus({ preventScroll: true }), [])
  useEffect(() => {
    if (area.current !== null) fit(area.current)
  }, [text.value])
  const conversation = State.current.value
  const isAnswering = State.isAnswering.value
  const send = (): void => {
    const question = text.value.trim()
    if (question === "" || isAnswering) return
    text.value = ""
    State.ask(question)
  }
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault()
        send()
      }}
    >
      <textarea
        id="question"
        ref={area}
        rows={1}
        value={text.value}
        aria-label="Question"
        placeholder="Ask something"
        enterkeyhint="send"
        onInput={(event) => text.value = event.currentTarget.value}
        onKeyDown={(event) => {
          // an input method's Enter chooses a word
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
          event.preventDefault()
          send()
        }}
      />
      {isAnswering
        ? <IconButton name="stop" label="Stop" class="primary" onClick={() => State.stop(conversation.id)} />
        : <IconButton name="send" label="Send" class="primary" onClick={send} />}
    </form>
  )
}
