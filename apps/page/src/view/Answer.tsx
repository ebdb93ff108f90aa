/** What the model said. */
import { useSignal } from "@preact/signals"
import type { Stats, Turn } from "../Conversation.ts"
import * as State from "../State.ts"
import { IconButton } from "./Icon.tsx"
import { Rendered } from "./Rendered.tsx"

const endings = {
  end: undefined,
  length: "The answer ended at its token limit. A higher one is possible in the settings.",
  stopped: "Stopped.",
  error: undefined
} as const

export const Answer = ({ isComing, isLast, turn }: {
  readonly turn: Turn
  readonly isLast: boolean
  readonly isComing: boolean
}) => {
  const isCopied = useSignal(false)
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(turn.text)
    isCopied.value = true
    setTimeout(() => isCopied.value = false, 1500)
  }
  const note = turn.ending === undefined ? undefined : endings[turn.ending]
  return (
    <article class="turn answer" aria-label="Answer">
      {turn.reasoning === undefined
        ? null
        : (
          <details class="reasoning">
            <summary>{isComing && turn.text === "" ? "Thinking…" : "Thoughts"}</summary>
            <p>{turn.reasoning}</p>
          </details>
        )}
      <Rendered text={turn.text} />
      {isComing && turn.text === "" ? <p class="waiting" role="status">Waiting for the first word…</p> : null}
      {turn.error === undefined ? null : <p class="trouble" role="alert">{turn.error}</p>}
      {note === undefined ? null : <p class="note">{note}</p>}
      {isComing ? null : (
        <footer>
          {turn.text === "" || navigator.clipboard === undefined ? null : (
            <IconButton
              name={isCopied.value ? "check" : "copy"}
              label={isCopied.value ? "Copied" : "Copy the answer"}
              onClick={() => void copy()}
            />
          )}
          {isLast ? <IconButton name="again" label="Answer again" onClick={State.regenerate} /> : null}
          {State.settings.value.speed && turn.stats !== undefined ? <Speed stats={turn.stats} /> : null}
        </footer>
      )}
    </article>
  )
}

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

const Speed = ({ stats }: { readonly stats: Stats }) => {
  const { answerTokens, cachedTokens, firstTokenMillis, promptTokens, tokensPerSecond } = stats
  const rate = tokensPerSecond === undefined ? "" : `, ${tokensPerSecond.toFixed(1)} tokens/s`
  const cached = cachedTokens === 0 ? "" : ` (${cachedTokens} of them known)`
  return (
    <span class="speed" title={`${counted(promptTokens, "token")} of prompt${cached}`}>
      {counted(answerTokens, "token")}
      {rate}, first after {Math.round(firstTokenMillis)} ms
    </span>
  )
}
