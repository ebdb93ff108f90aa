/** What a model is and what it will take, before it is read. */
import type { Memory } from "@tg/web/Protocol"
import { nameOf } from "../Choice.ts"
import * as Kept from "../Kept.ts"
import * as Local from "../Local.ts"
import * as Sizes from "../Sizes.ts"

const room = ({ deviceBytes, mostBytes }: Memory): string =>
  deviceBytes === undefined ? "" : mostBytes > deviceBytes
    ? `, more than the ${Sizes.bytes(deviceBytes)} there are`
    : ` of ${Sizes.bytes(deviceBytes)}`

export const Plan = ({ candidate: { choice, facts }, onDone }: {
  readonly candidate: Local.Candidate
  readonly onDone: () => void
}) => {
  const { memory } = facts
  const fits = memory?.deviceBytes === undefined || memory.mostBytes <= memory.deviceBytes
  const rows: ReadonlyArray<readonly [string, string]> = [
    ["Model", `${facts.architecture}, ${Sizes.parameters(facts.parameters)} parameters`],
    ["File", `${nameOf(choice)}: ${Sizes.bytes(facts.fileBytes)}, mostly ${facts.weightType}`],
    ...memory === undefined ? [] : [
      ["Memory", `${Sizes.bytes(memory.mostBytes)}${room(memory)}`],
      [
        "Of that",
        `weights ${Sizes.bytes(memory.weightBytes)}, ${Sizes.count(memory.context)} tokens ${
          Sizes.bytes(memory.kvBytes)
        }`
      ]
    ] as const,
    ["Conversation", `up to ${Sizes.count(facts.contextLength)} tokens`],
    ["Runs on", `${facts.device.name}: ${facts.device.why}`]
  ]
  return (
    <section aria-labelledby="plan-title">
      <h3 id="plan-title">{facts.name}</h3>
      <dl class="plan">
        {rows.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      {facts.chats
        ? null
        : <p class="trouble">This model has no chat template, so it cannot answer here. Choose one made for chats.</p>}
      {fits
        ? null
        : <p class="trouble">It does not fit. Choose a smaller model, or one with smaller weights, such as Q4_0.</p>}
      <div class="actions">
        <button type="button" onClick={() => void Local.dismiss()}>Another one</button>
        {choice.kind !== "address" ? null : (
          <button
            type="button"
            class="primary"
            disabled={!fits || !facts.chats}
            onClick={() => {
              void Local.dismiss()
              void Kept.keep(choice.url)
            }}
          >
            Download and keep
          </button>
        )}
        <button
          type="button"
          class={choice.kind === "address" ? "" : "primary"}
          disabled={!fits || !facts.chats}
          onClick={() => {
            onDone()
            void Local.take()
          }}
        >
          {choice.kind === "address" ? "Load without keeping" : "Load"}
        </button>
      </div>
    </section>
  )
}
