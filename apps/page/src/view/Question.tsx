/** What a person said, and may say again in other words. */
import { useSignal } from "@preact/signals"
import type { Turn } from "../Conversation.ts"
import * as State from "../State.ts"
import { IconButton } from "./Icon.tsx"

export const Question = ({ canEdit, turn }: { readonly turn: Turn; readonly canEdit: boolean }) => {
  const draft = useSignal<string | undefined>(undefined)
  if (draft.value !== undefined) {
    return (
      <form
        class="turn question editing"
        onSubmit={(event) => {
          event.preventDefault()
          const text = draft.value?.trim() ?? ""
          draft.value = undefined
          if (text !== "") State.edit(turn.id, text)
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") draft.value = undefined
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
          event.preventDefault()
          event.currentTarget.requestSubmit()
        }}
      >
        <textarea
          aria-label="Edit the question"
          ref={(area) => area?.focus()}
          value={draft.value}
          onInput={(event) => draft.value = event.currentTarget.value}
        />
        <div class="actions">
          <button type="button" onClick={() => draft.value = undefined}>Cancel</button>
          <button type="submit" class="primary">Ask again</button>
        </div>
      </form>
    )
  }
  return (
    <article class="turn question" aria-label="You">
      <p>{turn.text}</p>
      {canEdit
        ? <IconButton name="edit" label="Edit the question" onClick={() => draft.value = turn.text} />
        : null}
    </article>
  )
}
