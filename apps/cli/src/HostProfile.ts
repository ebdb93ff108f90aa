/** What the host does for a token while the device decodes, for `tg bench --host`. */
import { Effect } from "effect"
import { Chosen } from "./Devices.ts"
import * as HostCalls from "./HostCalls.ts"
import { UsageError } from "./Report.ts"
import * as Table from "./Table.ts"

/** Of one token. */
export interface HostProfile {
  readonly tokens: number
  /** Turns of the event loop in which something was asked of Dawn. */
  readonly micros: number
  /** Of that, what the thread was running: less where others use the processors too. */
  readonly cpuMicros: number
  /** Of `micros`, inside of calls into Dawn. */
  readonly dawnMicros: number
  readonly dawnCalls: number
  /** Of `micros`, Dawn's own work between calls. */
  readonly eventMicros: number
  /** Of all other turns, in which the host waits. */
  readonly waitMicros: number
  /** Bytes that were allocated: in the JavaScript heap, and as memory of arrays. */
  readonly heapBytes: number
  readonly arrayBytes: number
  /** Garbage collections, and how long the thread stood still for them. */
  readonly collections: number
  readonly collectionMicros: number
  /** The method that takes longest first. */
  readonly calls: ReadonlyArray<HostCalls.Calls>
}

const sum = (values: ReadonlyArray<number>): number => values.reduce((a, b) => a + b, 0)

/** Refuses devices of which there is nothing to tell: those of the CPU compute where they are called. */
export const check = Effect.flatMap(Chosen, ({ kind, name }) =>
  kind === "webgpu"
    ? Effect.void
    : new UsageError({ message: `--host profiles calls into WebGPU, and the device is ${name}; add --device webgpu` }))

/** Profiles work that decodes so many tokens. */
export const of = Effect.fn("cli.bench.host")(
  function*<A, E, R>(work: Effect.Effect<A, E, R>, tokens: number) {
    const [, host] = yield* HostCalls.profile(work)
    const { calls, cpuMicros, eventMicros, hostMicros, waitMicros } = host
    const made: HostProfile = {
      tokens,
      micros: hostMicros / tokens,
      cpuMicros: cpuMicros / tokens,
      dawnMicros: sum(calls.map(({ micros }) => micros)) / tokens,
      dawnCalls: sum(calls.map((own) => own.calls)) / tokens,
      eventMicros: eventMicros / tokens,
      waitMicros: waitMicros / tokens,
      heapBytes: Math.round(host.heapBytes / tokens),
      arrayBytes: Math.round(host.arrayBytes / tokens),
      collections: host.collections / tokens,
      collectionMicros: host.collectionMicros / tokens,
      calls: calls.map(({ calls, micros, name }) => ({ name, calls: calls / tokens, micros: micros / tokens }))
    }
    return made
  }
)

const micros = (value: number): string => value.toFixed(1)
const count = (value: number): string => String(Number(value.toFixed(2)))

/** A line for each part. */
export const asText = (host: HostProfile): string =>
  [
    "",
    ...Table.table([
      ["the host, for a token", "calls", "us", "us a call"],
      ...host.calls.map((
        { calls, micros: time, name }
      ) => [name, count(calls), micros(time), (time / calls).toFixed(2)]),
      [
        "all calls into Dawn",
        count(host.dawnCalls),
        micros(host.dawnMicros),
        (host.dawnMicros / host.dawnCalls).toFixed(2)
      ],
      ["Dawn's events", "", micros(host.eventMicros), ""],
      ["outside of Dawn", "", micros(host.micros - host.dawnMicros - host.eventMicros), ""],
      ["together", "", micros(host.micros), ""],
      ["of which the thread ran", "", micros(host.cpuMicros), ""],
      ["waiting for the device", "", micros(host.waitMicros), ""],
      [
        "collecting garbage, of all of it",
        count(host.collections),
        micros(host.collectionMicros),
        host.collections === 0 ? "" : (host.collectionMicros / host.collections).toFixed(2)
      ]
    ]),
    `${host.heapBytes} bytes of heap and ${host.arrayBytes} of arrays are allocated for a token; ${host.tokens} tokens`,
    ""
  ].join("\n")
