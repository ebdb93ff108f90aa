/** The vectors from a folder, in Node. */
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Vectors from "./Vectors.ts"

/** Where they lie in this package. */
export const folder = fileURLToPath(new URL("../vectors/", import.meta.url))

/** Reads them from the first of these folders that is there. */
export const read = (folders: ReadonlyArray<string> = [folder]) => {
  const found = folders.find((each) => existsSync(each)) ?? folder
  return Vectors.read((file) => readFile(join(found, file)))
}
