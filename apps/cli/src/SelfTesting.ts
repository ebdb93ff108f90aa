/** `tg doctor --self-test`: whether the device computes what it should, and what other commands do without from then on. */
import { fileURLToPath } from "node:url"
import type { Restrictions } from "@tg/core-uop/DeviceLimits"
import type * as DeviceProfiles from "@tg/node/DeviceProfiles"
import { type AdapterFacts, identityOf } from "@tg/runtime-webgpu/WebGpuInfo"
import * as NodeVectors from "@tg/self-test/NodeVectors"
import * as SelfTest from "@tg/self-test/SelfTest"
import * as Verdict from "@tg/self-test/Verdict"
import { Effect } from "effect"
import * as Devices from "./Devices.ts"
import * as Output from "./Output.ts"

// beside a bundled program the page has them
const folders = [NodeVectors.folder, fileURLToPath(new URL("./site/self-test/", import.meta.url))]

/** What is tested, and where that is remembered. */
export interface Subject {
  readonly device: "webgpu" | "wasm"
  /** Of `webgpu`. */
  readonly adapter: AdapterFacts | undefined
  readonly restrictions: Restrictions
  readonly keeping: DeviceProfiles.Keeping | undefined
}

/** A self-test that was run. */
export interface Tested {
  readonly verdict: Verdict.Verdict
  /** Whether other commands follow it. */
  readonly isKept: boolean
}

const identity = ({ adapter, device }: Pick<Subject, "adapter" | "device">): string =>
  device === "webgpu" && adapter !== undefined ? identityOf(adapter) : Devices.wasmIdentity

/** Tests a device. With lower limits than it has, it is another one, of which nothing is kept. */
export const run = Effect.fn("SelfTesting.run")(function*(subject: Subject) {
  const { adapter, device, keeping, restrictions } = subject
  const name = adapter?.description === undefined || device === "wasm" ? device : `webgpu (${adapter.description})`
  const vectors = yield* NodeVectors.read(folders)
  yield* Output.note(`testing ${name}: ${SelfTest.cases(vectors).length} cases`)
  const verdict = yield* SelfTest.run(
    {
      device: name,
      identity: identity(subject),
      layer: (avoid) =>
        Devices.layer(device, {
          restrictions,
          avoid,
          profiles: keeping === undefined ? {} : { keeping }
        })
    },
    vectors
  )
  const isWhole = restrictions.subgroups && Object.keys(restrictions.limits).length === 0
  const isKept = isWhole && keeping !== undefined
  const problem = isKept ? yield* Verdict.keep(keeping.store, verdict) : undefined
  if (problem !== undefined) yield* Output.note(`warning: what the self-test found is not kept: ${problem}`)
  const tested: Tested = { verdict, isKept: isKept && problem === undefined }
  return tested
})

/** What the last self-test of a device has found, if it is kept. */
export const kept = (
  keeping: DeviceProfiles.Keeping | undefined,
  subject: Pick<Subject, "adapter" | "device">
): Effect.Effect<Verdict.Verdict | undefined> =>
  keeping === undefined ? Effect.succeed(undefined) : Verdict.find(keeping.store, identity(subject))

/** For people: what was found now. */
export const testedLines = ({ isKept, verdict }: Tested): ReadonlyArray<string> => [
  ...Verdict.report(verdict),
  ...(isKept ? [] : ["  not kept: other commands do not know of it"])
]

/** For people: what was found before. */
export const keptLines = (verdict: Verdict.Verdict | undefined): ReadonlyArray<string> =>
  verdict === undefined
    ? []
    : verdict.failures.length === 0
    ? [`  self-test of ${verdict.date.slice(0, 10)}: all ${verdict.cases} cases right`]
    : Verdict.report(verdict).map((line) => `  ${line}`)
