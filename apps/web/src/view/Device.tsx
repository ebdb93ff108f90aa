/** The page about this device. */
import { useSignal } from "@preact/signals"
import { report, type Verdict } from "@tg/web/Trial"
import type { DeviceChoice } from "../Choice.ts"
import * as Local from "../Local.ts"
import * as Trials from "../Trials.ts"
import { Progress } from "./Progress.tsx"
import { Speed } from "./Speed.tsx"

const avoided = {
  "subgroups": "subgroups",
  "packed-dot": "the instruction for products of bytes",
  "large-workgroups": "large workgroups"
} as const

const summary = ({ avoid, cases, failures, refused }: Verdict): string =>
  failures.length === 0
    ? `All ${cases} cases are right.`
    : refused
    ? `${failures.length} of ${cases} cases are wrong. Models do not run on this device until a test finds it right.`
    : `${failures.length} of ${cases} cases were wrong, and all are right without ${
      avoid.map((each) => avoided[each]).join(" and ")
    }. Models on this device do without from now on.`

const Found = ({ verdict }: { readonly verdict: Verdict }) => {
  const isCopied = useSignal(false)
  const text = report(verdict).join("\n")
  return (
    <>
      <p class={verdict.failures.length === 0 ? "card" : "trouble"} role="status">
        <strong>{summary(verdict)}</strong>
        <span>{verdict.device}, {new Date(verdict.date).toLocaleString()}</span>
      </p>
      <details open={verdict.failures.length > 0}>
        <summary>Report</summary>
        {/* it scrolls, so that it can be reached by keys */}
        <pre tabIndex={0}>{text}</pre>
      </details>
      <button
        type="button"
        onClick={() => void navigator.clipboard.writeText(text).then(() => isCopied.value = true, () => {})}
      >
        {isCopied.value ? "Copied" : "Copy the report"}
      </button>
    </>
  )
}

const SelfTest = () => {
  const { busy, testing, verdict } = Trials
  return (
    <section aria-labelledby="test-title">
      <h2 id="test-title">Self-test</h2>
      <p>
        Small kernels of each kind, weights of each type and two small models run on this device, and what they compute
        is compared with recorded results. What is wrong is avoided from then on.
      </p>
      {testing.value === undefined ? null : (
        <Progress
          label={`Testing${testing.value.avoid.length === 0 ? "" : ` without ${testing.value.avoid.join(", ")}`}`}
          doneBytes={testing.value.done}
          totalBytes={testing.value.of}
          show={(cases) => String(cases)}
        />
      )}
      <button type="button" class="primary" disabled={busy.value !== undefined} onClick={() => void Trials.test()}>
        Test this device
      </button>
      {verdict.value === undefined || busy.value === "testing" ? null : <Found verdict={verdict.value} />}
    </section>
  )
}

export const Device = () => (
  <main class="device">
    <header>
      <h1>This device</h1>
      <a href="./">Back to the chat</a>
    </header>
    <div class="sheet">
      {Trials.trouble.value === undefined ? null : <p class="trouble" role="alert">{Trials.trouble.value}</p>}
      <label class="field">
        <span>Runs on</span>
        <select
          value={Local.device.value}
          disabled={Trials.busy.value !== undefined}
          onChange={(event) => {
            Local.changeDevice(event.currentTarget.value as DeviceChoice)
            Trials.verdict.value = undefined
            Trials.gauged.value = undefined
            void Trials.recall()
          }}
        >
          {Object.entries(Local.devices).map(([name, label]) => <option key={name} value={name}>{label}</option>)}
        </select>
      </label>
      <SelfTest />
      <Speed />
    </div>
  </main>
)
