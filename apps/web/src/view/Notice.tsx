/** What a person should know before the model answers: how far it is, or why there is none. */
import * as Local from "../Local.ts"
import { Progress } from "./Progress.tsx"

const labels = {
  fetching: (name: string) => `Fetching ${name}`,
  reading: (name: string) => `Looking at ${name}`,
  loading: (name: string) => `Loading ${name}`
} as const

export const Notice = () => {
  const { value } = Local.phase
  if (value.at === "none" || value.at === "ready") return null
  if (value.at === "failed") {
    return (
      <div class="trouble notice" role="alert">
        <p>{value.message}</p>
        <div class="actions">
          <button type="button" onClick={() => void Local.use(value.choice)}>Try again</button>
          {value.choice.kind === "own"
            ? null
            : <button type="button" onClick={() => void Local.use({ kind: "own" })}>Take the small model</button>}
        </div>
      </div>
    )
  }
  return (
    <div class="notice">
      <Progress
        label={labels[value.at](value.name)}
        doneBytes={value.doneBytes}
        totalBytes={value.totalBytes}
        onCancel={Local.cancel}
      />
    </div>
  )
}
