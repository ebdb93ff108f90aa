/** A real browser, where there is one: Debian's Chromium, without a window, with WebGPU in software. */
import { existsSync } from "node:fs"
import { type Browser, type BrowserContext, chromium } from "playwright-core"

/** Where it is. */
export const executablePath = "/usr/bin/chromium"

/** Whether there is a browser. A machine that has to have one fails instead of skipping. */
export const hasBrowser = (): boolean => {
  if (existsSync(executablePath)) return true
  const missing = `${executablePath} is not there; sudo bash scripts/chromium.sh installs it`
  if (process.env["TG_REQUIRE_BROWSER"] === "1") throw new Error(`TG_REQUIRE_BROWSER=1, but ${missing}`)
  console.warn(`SKIPPED: tests of the engine in a page, because ${missing}`)
  return false
}

/** Starts a browser. */
export const launch = (): Promise<Browser> =>
  chromium.launch({ executablePath, args: ["--no-sandbox", "--enable-unsafe-webgpu"] })

/** Starts one with files of its own on the disk, and with a port for the protocol of its tools. */
export const launchPersistent = (folder: string): Promise<BrowserContext> =>
  chromium.launchPersistentContext(folder, {
    executablePath,
    args: ["--no-sandbox", "--enable-unsafe-webgpu", "--remote-debugging-port=0"]
  })
