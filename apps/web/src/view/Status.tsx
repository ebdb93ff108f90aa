/** Which model answers, and where it runs: a button that opens the choice. */
import { useRef } from "preact/hooks"
import * as Kept from "../Kept.ts"
import * as Local from "../Local.ts"
import { ModelDialog } from "./ModelDialog.tsx"

const words = (): { readonly name: string; readonly place: string } => {
  const { value } = Local.phase
  switch (value.at) {
    case "none":
      return { name: "No model yet", place: "" }
    case "failed":
      return { name: "No model", place: "choose one" }
    case "ready":
      return { name: value.facts.name, place: value.facts.device.name }
    default:
      return { name: value.name, place: "loading" }
  }
}

export const Status = () => {
  const dialog = useRef<HTMLDialogElement>(null)
  const { name, place } = words()
  return (
    <>
      <button
        type="button"
        class="model"
        data-at={Local.phase.value.at}
        onClick={() => {
          dialog.current?.showModal()
          void Kept.refresh()
        }}
      >
        <span class="dot" aria-hidden="true" />
        <span class="model-name">{name}</span>
        {place === "" ? null : <span class="place">{place}</span>}
        <span class="hidden">: choose a model</span>
      </button>
      <ModelDialog dialog={dialog} />
    </>
  )
}
