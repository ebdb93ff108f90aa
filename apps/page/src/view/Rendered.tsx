/** Markdown of a model on the screen. What renders it is fetched when the first answer is on its way; until then text is shown as it is. */
import { signal } from "@preact/signals"
import { useLayoutEffect, useRef } from "preact/hooks"
import type * as Markdown from "../Markdown.ts"

const renderer = signal<Pick<typeof Markdown, "render"> | undefined>(undefined)

let isAsked = false
const ask = (): void => {
  if (isAsked) return
  isAsked = true
  import("../Markdown.ts").then(
    (markdown) => renderer.value = markdown,
    // the next answer asks again
    () => isAsked = false
  )
}

export const Rendered = ({ text }: { readonly text: string }) => {
  const element = useRef<HTMLDivElement>(null)
  const markdown = renderer.value
  useLayoutEffect(ask, [])
  useLayoutEffect(() => {
    if (element.current === null) return
    if (markdown === undefined) element.current.textContent = text
    else markdown.render(element.current, text)
  }, [text, markdown])
  return <div class="text" ref={element} />
}
