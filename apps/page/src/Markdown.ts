/** Markdown to HTML that is safe to show: what a model writes is not trusted. */
import DOMPurify, { type Config } from "dompurify"
import { Marked } from "marked"

const allowed: Config & { readonly RETURN_DOM_FRAGMENT: true } = {
  ALLOWED_TAGS: [
    ..."a blockquote br code del em h1 h2 h3 h4 h5 h6 hr li ol p pre strong".split(" "),
    ..."table tbody td th thead tr ul".split(" ")
  ],
  ALLOWED_ATTR: ["href", "align", "start", "class"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
  RETURN_DOM_FRAGMENT: true
}

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;" }
const escaped = (text: string): string => text.replace(/[&<>"]/g, (letter) => escapes[letter]!)

/** HTML in an answer is shown as it was written, and a picture as its description: nothing is fetched. */
const marked = new Marked({
  async: false,
  breaks: true,
  gfm: true,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ text }) => escaped(text),
    checkbox: ({ checked }) => checked ? "☑ " : "☐ "
  }
})

let isSetUp = false
const setUp = (): void => {
  if (isSetUp) return
  isSetUp = true
  DOMPurify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName === "A") {
      node.setAttribute("target", "_blank")
      node.setAttribute("rel", "noopener noreferrer nofollow")
    }
    if (node.hasAttribute("class") && !/^language-[\w+#-]+$/.test(node.getAttribute("class") ?? "")) {
      node.removeAttribute("class")
    }
  })
}

/** Sets an element's content to the text, rendered. */
export const render = (element: Element, text: string): void => {
  setUp()
  element.replaceChildren(DOMPurify.sanitize(marked.parse(text, { async: false }), allowed))
}
