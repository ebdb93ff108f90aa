/** What a person can set. Each change counts at once. */
import type { ComponentChildren, RefObject } from "preact"
import * as Settings from "../Settings.ts"
import * as State from "../State.ts"

const Field = ({ children, label }: { readonly label: string; readonly children: ComponentChildren }) => (
  <label class="field">
    <span>{label}</span>
    {children}
  </label>
)

type NumberName = "temperature" | "topP" | "maxTokens"

const NumberField = ({ label, max, min, name, step }: {
  readonly name: NumberName
  readonly label: string
  readonly min: number
  readonly max: number
  readonly step: number
}) => (
  <Field label={label}>
    <input
      type="number"
      value={State.settings.value[name]}
      min={min}
      max={max}
      step={step}
      onChange={({ currentTarget: input }) => {
        const value = input.valueAsNumber
        if (Settings.isValid[name](value)) State.change({ [name]: value })
        else input.value = String(State.settings.value[name])
      }}
    />
  </Field>
)

const FlagField = ({ label, name }: { readonly name: "thinking" | "speed"; readonly label: string }) => (
  <label class="field flag">
    <input
      type="checkbox"
      checked={State.settings.value[name]}
      onChange={(event) => State.change({ [name]: event.currentTarget.checked })}
    />
    <span>{label}</span>
  </label>
)

const themes = { system: "As the system", light: "Light", dark: "Dark" } as const

export const SettingsDialog = ({ dialog, isServer }: {
  readonly dialog: RefObject<HTMLDialogElement | null>
  readonly isServer: boolean
}) => {
  const { apiKey, model, system, theme } = State.settings.value
  const models = State.models.value
  return (
    <dialog ref={dialog} aria-labelledby="settings-title">
      <form method="dialog">
        <h2 id="settings-title">Settings</h2>
        {isServer
          ? (
            <Field label="Model">
              <select
                value={models.includes(model) ? model : models[0]}
                onChange={(event) => State.change({ model: event.currentTarget.value })}
              >
                {models.map((name) => <option key={name} value={name}>{name}</option>)}
              </select>
            </Field>
          )
          : null}
        <Field label="System text of new chats">
          <textarea rows={3} value={system} onChange={(event) => State.change({ system: event.currentTarget.value })} />
        </Field>
        <NumberField name="temperature" label="Temperature (0 takes the likeliest word)" min={0} max={2} step={0.1} />
        <NumberField name="topP" label="Share of the probability to draw from" min={0.01} max={1} step={0.01} />
        <NumberField name="maxTokens" label="Tokens an answer may have" min={1} max={1_000_000} step={1} />
        <FlagField name="thinking" label="Let the model think first, if it can" />
        <FlagField name="speed" label="Show tokens a second" />
        <Field label="Colours">
          <select
            value={theme}
            onChange={(event) => State.change({ theme: event.currentTarget.value as Settings.Settings["theme"] })}
          >
            {Object.entries(themes).map(([name, label]) => <option key={name} value={name}>{label}</option>)}
          </select>
        </Field>
        {isServer
          ? (
            <Field label="API key, if the server asks for one">
              <input
                type="password"
                autocomplete="off"
                value={apiKey}
                onChange={(event) => State.change({ apiKey: event.currentTarget.value })}
              />
            </Field>
          )
          : null}
        <p class="hint">Enter sends, Shift and Enter begins a line, Escape stops an answer, Alt and N begins a chat.</p>
        <div class="actions">
          <button type="submit" class="primary">Done</button>
        </div>
      </form>
    </dialog>
  )
}
