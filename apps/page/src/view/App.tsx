/** The page as a whole: the list of conversations beside the one that is shown. */
import { useSignal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { titleOf } from "../Conversation.ts"
import type { Parts } from "../Parts.ts"
import * as State from "../State.ts"
import { Composer } from "./Composer.tsx"
import { IconButton } from "./Icon.tsx"
import { SettingsDialog } from "./SettingsDialog.tsx"
import { Sidebar } from "./Sidebar.tsx"
import { Transcript } from "./Transcript.tsx"

const onKey = (event: KeyboardEvent): void => {
  if (event.key === "Escape" && State.isAnswering.value) State.stop(State.current.value.id)
  if (event.altKey && event.code === "KeyN") {
    event.preventDefault()
    State.begin()
  }
}

export const App = ({ parts }: { readonly parts: Parts }) => {
  const { Notice, Status } = parts
  const isOpen = useSignal(false)
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    addEventListener("keydown", onKey)
    return () => removeEventListener("keydown", onKey)
  }, [])
  const conversation = State.current.value
  const title = titleOf(conversation)
  useEffect(() => {
    document.title = conversation.turns.length === 0 ? "tg" : `${title} · tg`
  }, [title, conversation.turns.length])
  return (
    <div class={isOpen.value ? "page open" : "page"} data-loaded={State.isLoaded.value}>
      <a class="skip" href="#question">Go to the question</a>
      <Sidebar onDone={() => isOpen.value = false} onSettings={() => dialog.current?.showModal()} />
      <button
        type="button"
        class="shade"
        aria-label="Close the list of chats"
        tabIndex={isOpen.value ? 0 : -1}
        onClick={() => isOpen.value = false}
      />
      <main>
        <header>
          <IconButton name="menu" label="Chats" class="menu" onClick={() => isOpen.value = true} />
          <h1>{title}</h1>
          {Status === undefined ? null : <Status />}
          <IconButton name="plus" label="New chat" class="menu" onClick={State.begin} />
        </header>
        {State.trouble.value === undefined ? null : <p class="trouble" role="alert">{State.trouble.value}</p>}
        {Notice === undefined ? null : <Notice />}
        <Transcript conversation={conversation} where={parts.where} />
        <Composer key={conversation.id} />
      </main>
      <SettingsDialog dialog={dialog} isServer={parts.isServer} />
    </div>
  )
}
