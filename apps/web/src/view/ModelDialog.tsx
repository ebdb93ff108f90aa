/** The choice of a model: what is in use, and where another one may come from. */
import { useSignal } from "@preact/signals"
import type { RefObject } from "preact"
import { useEffect } from "preact/hooks"
import type { Facts } from "@tg/web/Protocol"
import { IconButton } from "@tg/page/view/Icon"
import * as Kept from "../Kept.ts"
import type { DeviceChoice } from "../Choice.ts"
import * as Local from "../Local.ts"
import * as Offline from "../Offline.ts"
import * as Sizes from "../Sizes.ts"
import { Plan } from "./Plan.tsx"
import { Progress } from "./Progress.tsx"

const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false

/** Files may be dropped anywhere on the page. */
const useDrop = (dialog: RefObject<HTMLDialogElement | null>): boolean => {
  const isOver = useSignal(false)
  useEffect(() => {
    const over = (event: DragEvent): void => {
      if (!hasFiles(event)) return
      event.preventDefault()
      isOver.value = true
    }
    const leave = (event: DragEvent): void => {
      if (event.relatedTarget === null) isOver.value = false
    }
    const drop = (event: DragEvent): void => {
      if (!hasFiles(event)) return
      event.preventDefault()
      isOver.value = false
      const file = event.dataTransfer?.files[0]
      if (file === undefined) return
      if (dialog.current?.open === false) dialog.current.showModal()
      void Local.consider({ kind: "file", file })
    }
    addEventListener("dragover", over)
    addEventListener("dragleave", leave)
    addEventListener("drop", drop)
    return () => {
      removeEventListener("dragover", over)
      removeEventListener("dragleave", leave)
      removeEventListener("drop", drop)
    }
  }, [])
  return isOver.value
}

const InUse = ({ context, facts }: { readonly facts: Facts; readonly context: number }) => (
  <section aria-labelledby="in-use-title">
    <h3 id="in-use-title">In use</h3>
    <p class="card">
      <strong>{facts.name}</strong>
      <span>
        {facts.weightType}, {Sizes.parameters(facts.parameters)} parameters, {Sizes.bytes(facts.fileBytes)};{" "}
        {Sizes.count(context)} tokens of conversation
      </span>
      <span>
        Runs on {facts.device.name}: {facts.device.why}.
      </span>
    </p>
  </section>
)

const Sources = () => {
  const text = useSignal("")
  return (
    <section aria-labelledby="sources-title">
      <h3 id="sources-title">Another model</h3>
      <label class="drop">
        <input
          type="file"
          accept=".gguf"
          onChange={({ currentTarget }) => {
            const file = currentTarget.files?.[0]
            currentTarget.value = ""
            if (file !== undefined) void Local.consider({ kind: "file", file })
          }}
        />
        <strong>Choose a GGUF file</strong>
        <span>or drop one on the page. It is read from where it is, and goes nowhere.</span>
      </label>
      <form
        class="address"
        onSubmit={(event) => {
          event.preventDefault()
          const url = text.value.trim()
          if (url !== "") void Local.consider({ kind: "address", url })
        }}
      >
        <input
          type="text"
          inputMode="url"
          autocomplete="off"
          spellcheck={false}
          aria-label="Address or name of a model"
          placeholder="https://… or hf:owner/repo:Q4_0"
          value={text.value}
          onInput={(event) => text.value = event.currentTarget.value}
        />
        <button type="submit">Look</button>
      </form>
    </section>
  )
}

const Coming = ({ coming }: { readonly coming: NonNullable<typeof Kept.coming.value> }) => (
  <section aria-label="Download">
    <Progress
      label={coming.isWaiting ? "Another tab downloads it" : `Downloading ${shortOf(coming.name)}`}
      doneBytes={coming.doneBytes}
      totalBytes={coming.totalBytes === 0 ? undefined : coming.totalBytes}
      onCancel={Kept.stop}
    />
  </section>
)

/** Of an address the file, of a name all of it. */
const shortOf = (name: string): string =>
  URL.parse(name)?.protocol.startsWith("http") === true ? name.split(/[?#]/)[0]!.split("/").at(-1)! : name

const confirmed = (name: string): boolean => confirm(`Delete “${name}” from this browser?`)

const KeptModels = ({ onDone }: { readonly onDone: () => void }) =>
  Kept.all.value.length === 0 ? null : (
    <section aria-labelledby="kept-title">
      <h3 id="kept-title">Kept in this browser</h3>
      <ul class="kept">
        {Kept.all.value.map(({ doneBytes, isComplete, name, totalBytes }) => (
          <li key={name}>
            <span class="kept-name" title={name}>{shortOf(name)}</span>
            <span class="bytes">
              {isComplete ? Sizes.bytes(totalBytes) : `${Sizes.bytes(doneBytes)} of ${Sizes.bytes(totalBytes)}`}
            </span>
            {isComplete
              ? (
                <button
                  type="button"
                  onClick={() => {
                    onDone()
                    void Local.use({ kind: "kept", name })
                  }}
                >
                  Use
                </button>
              )
              : <button type="button" onClick={() => void Kept.keep(name)}>Go on</button>}
            <IconButton
              name="trash"
              label={`Delete ${name}`}
              onClick={() => confirmed(name) && void Kept.forget(name)}
            />
          </li>
        ))}
      </ul>
    </section>
  )

const Device = () => (
  <label class="field">
    <span>Runs on</span>
    <select
      value={Local.device.value}
      onChange={(event) => Local.changeDevice(event.currentTarget.value as DeviceChoice)}
    >
      {Object.entries(Local.devices).map(([name, label]) => <option key={name} value={name}>{label}</option>)}
    </select>
  </label>
)

export const ModelDialog = ({ dialog }: { readonly dialog: RefObject<HTMLDialogElement | null> }) => {
  const isOver = useDrop(dialog)
  const close = (): void => dialog.current?.close()
  const { value } = Local.phase
  const isOwn = value.at === "ready" && value.choice.kind === "own"
  return (
    <>
      {isOver ? <div class="drop-here">Drop a GGUF file to look at it</div> : null}
      <dialog ref={dialog} class="models" aria-labelledby="model-title" onClose={() => void Local.dismiss()}>
        <h2 id="model-title" tabIndex={-1} autofocus>Model</h2>
        {[Local.refusal.value, Kept.trouble.value].map((text) =>
          text === undefined ? null : <p class="trouble" role="alert" key={text}>{text}</p>
        )}
        {Local.looking.value === undefined
          ? null
          : <p class="hint" role="status">Looking at {Local.looking.value}…</p>}
        {Local.candidate.value === undefined
          ? (
            <>
              {value.at === "ready" ? <InUse facts={value.facts} context={value.context} /> : null}
              {Kept.coming.value === undefined ? null : <Coming coming={Kept.coming.value} />}
              <KeptModels onDone={close} />
              <Sources />
              <Device />
              <p class="hint">
                <a href="device.html">Test and measure this device</a>
              </p>
            </>
          )
          : <Plan candidate={Local.candidate.value} onDone={close} />}
        <div class="actions foot">
          <p class="hint">{Offline.isKept.value ? "This page works without a network." : ""}</p>
          {isOwn || Local.candidate.value !== undefined ? null : (
            <button
              type="button"
              onClick={() => {
                close()
                void Local.use({ kind: "own" })
              }}
            >
              Take tg-tiny
            </button>
          )}
          {Local.candidate.value === undefined
            ? <button type="button" class="primary" onClick={close}>Close</button>
            : null}
        </div>
      </dialog>
    </>
  )
}
