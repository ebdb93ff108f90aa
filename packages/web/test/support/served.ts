/** What the tests of pages begin with: the engine as it is bundled, a site with it, and a browser. */
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import type { Browser } from "playwright-core"
import { bundle, type Modules } from "../../bundle.ts"
import { launch } from "./browser.ts"
import { serve, type Site } from "./site.ts"

/** A site with the engine, and a browser to see it with. */
export interface Served {
  readonly site: Site
  readonly browser: Browser
  /** The engine. */
  readonly modules: Modules
  readonly end: () => Promise<void>
}

/** Starts them. `folders` says what lies where, given the folder of the bundle. */
export const served = async (folders: (built: string) => Parameters<typeof serve>[0]): Promise<Served> => {
  const built = fs.mkdtempSync(path.join(os.tmpdir(), "tg-web-"))
  const [site, browser, modules] = await Promise.all([serve(folders(built)), launch(), bundle(built)])
  return {
    site,
    browser,
    modules,
    end: async () => {
      await browser.close()
      await site.close()
      fs.rmSync(built, { recursive: true })
    }
  }
}
