import { readdirSync, readFileSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { random } from "../fuzz/Random.ts"
import { run, type Target } from "../fuzz/Target.ts"
import { quick, targets } from "../fuzz/targets/index.ts"

/** `pnpm fuzz` goes on for as long as it is told to, in a process that can be ended. */
const seconds = 4
const seed = 1
const folder = new URL("../fuzz/cases/", import.meta.url)

/** Runs a case; what it took of the processor's time is looked at as well. */
const check = async (target: Target, input: Uint8Array, name: string): Promise<void> => {
  const started = process.cpuUsage()
  const { finding } = await run(target, input)
  expect(finding, name).toBe(undefined)
  expect(process.cpuUsage(started).user, name).toBeLessThan(30e6)
}

describe("damaged input is refused with a typed error, soon", () => {
  it.each(quick.map((target) => [target.name, target] as const))("%s", async (name, target) => {
    const until = performance.now() + seconds * 1000
    let index = 0
    for (; index < 3000 && performance.now() < until; index++) {
      await check(target, target.make(random(seed, index)), `${name}, seed ${seed}, case ${index}`)
    }
    expect(index).toBeGreaterThan(0)
  })
})

describe("what was found once", () => {
  it.each(readdirSync(folder))("%s", async (file) => {
    const target = targets.find(({ name }) => file.startsWith(`${name}-`))
    expect(target, "the name of a case begins with that of its target").toBeDefined()
    await check(target!, new Uint8Array(readFileSync(new URL(file, folder))), file)
  })
})
