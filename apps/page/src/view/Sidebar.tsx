/** The list of conversations. */
import { titleOf } from "../Conversation.ts"
import * as State from "../State.ts"
import { Icon, IconButton } from "./Icon.tsx"

const confirmed = (title: string): boolean => confirm(`Delete “${title}”? This cannot be undone.`)

export const Sidebar = ({ onDone, onSettings }: { readonly onDone: () => void; readonly onSettings: () => void }) => (
  <nav class="sidebar" aria-label="Chats">
    <div class="top">
      <strong class="name">tg</strong>
      <IconButton name="close" label="Close the list of chats" class="menu" onClick={onDone} />
    </div>
    <button
      type="button"
      class="new"
      onClick={() => {
        State.begin()
        onDone()
      }}
    >
      <Icon name="plus" /> New chat
    </button>
    <ul>
      {State.all.value.map((conversation) => {
        const title = titleOf(conversation)
        return (
          <li key={conversation.id}>
            <button
              type="button"
              class="title"
              aria-current={conversation.id === State.current.value.id ? "page" : undefined}
              onClick={() => {
                State.show(conversation.id)
                onDone()
              }}
            >
              {title}
            </button>
            <IconButton
              name="trash"
              label={`Delete ${title}`}
              onClick={() => confirmed(title) && State.forget(conversation.id)}
            />
          </li>
        )
      })}
    </ul>
    <button type="button" class="new" onClick={onSettings}>
      <Icon name="gear" /> Settings
    </button>
  </nav>
)
