/**
 * Writes the vectors of the self-test, a small part of those of the tests: of each type of weights the first values and the first
 * rows of its matrix, and the smallest models of the oracle with their shortest run.
 *
 *     node packages/self-test/test/support/extract.ts [folder]
 */
import * as fs from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { table } from "@tg/gguf/GgufType"
import type { Index, Model, Type } from "../../src/Vectors.ts"

const vectors = fileURLToPath(new URL("../../../../test/vectors/", import.meta.url))

/** Values of each type, and rows of its matrix. */
const most = { values: 768, rows: 4 }

/** A model of the oracle. */
export interface Chosen {
  readonly name: string
  /** What it exercises. */
  readonly about: string
}

/** The models that the self-test has. */
const smallest: ReadonlyArray<Chosen> = [
  { name: "c05", about: "latent attention, experts, 27 blocks" },
  { name: "m01", about: "heads of keys and values, experts" }
]

const folderOf = (name: string): string => name.startsWith("c") ? "oracle" : "oracle-families"

interface Recorded {
  readonly values: number
  readonly rows: number
  readonly cols: number
  readonly cpu_rms_err: number
  readonly offsets: { readonly [K in "blocks" | "values" | "matrix" | "x" | "y"]: number }
}

const readJson = <A>(file: string): A => JSON.parse(fs.readFileSync(path.join(vectors, file), "utf8")) as A

/** Bytes put one behind the other, each at a multiple of 4; equal ones once. */
const appender = () => {
  const parts: Array<Buffer> = []
  const known = new Map<string, number>()
  let length = 0
  const append = (bytes: Buffer): number => {
    const key = bytes.toString("latin1")
    const at = known.get(key) ?? length
    if (at === length) {
      const padded = Buffer.concat([bytes, Buffer.alloc(-bytes.length & 3)])
      parts.push(padded)
      length += padded.length
      known.set(key, at)
    }
    return at
  }
  return { append, all: () => Buffer.concat(parts) }
}

/** Writes the files, with these models. */
export const extract = (folder: string, models = smallest): void => {
  const { all, append } = appender()
  const types = ["dequant", "dequant-rare"].flatMap((name) => {
    const file = fs.readFileSync(path.join(vectors, name, "vectors.bin"))
    const { types } = readJson<{ readonly types: Readonly<Record<string, Recorded>> }>(`${name}/index.json`)
    return Object.entries(types).map(([type, { cols, cpu_rms_err, offsets, rows, values }]): Type => {
      const { blockBytes, blockValues } = table[type as keyof typeof table]
      const part = (at: number, bytes: number): number => append(file.subarray(at, at + bytes))
      const ownRows = Math.min(rows, most.rows)
      const count = Math.min(values, most.values)
      return {
        type,
        count,
        rows: ownRows,
        cols,
        rmsError: cpu_rms_err,
        blocks: part(offsets.blocks, count / blockValues * blockBytes),
        values: part(offsets.values, 4 * count),
        matrix: part(offsets.matrix, ownRows * cols / blockValues * blockBytes),
        x: part(offsets.x, 4 * cols),
        y: part(offsets.y, 4 * ownRows)
      }
    })
  })
  interface Run extends Pick<Model, "argmax"> {
    readonly name: string
    readonly prompt: ReadonlyArray<number>
    readonly continuation: ReadonlyArray<number>
    readonly logits: string
  }
  const told = models.map(({ about, name }): Model => {
    const folder = folderOf(name)
    const { runs } = readJson<{ readonly runs: ReadonlyArray<Run> }>(`${folder}/${name}.json`)
    const { argmax, continuation, logits, prompt } = runs.find((run) => run.name === "base")!
    const int8 = readJson<Record<string, Record<string, ReadonlyArray<number>>>>(`${folder}/int8.json`)
    return {
      name,
      about,
      file: `${name}.gguf`,
      tokens: [...prompt, ...continuation],
      argmax,
      logits: append(fs.readFileSync(path.join(vectors, folder, logits))),
      int8: int8[name]!["base"]!
    }
  })
  const index: Index = { types, models: told }
  fs.mkdirSync(folder, { recursive: true })
  fs.writeFileSync(path.join(folder, "index.json"), `${JSON.stringify(index, undefined, 2)}\n`)
  fs.writeFileSync(path.join(folder, "vectors.bin"), all())
  for (const { name } of models) {
    fs.copyFileSync(path.join(vectors, folderOf(name), `${name}.gguf`), path.join(folder, `${name}.gguf`))
  }
}

if (import.meta.main) extract(path.resolve(process.argv[2] ?? fileURLToPath(new URL("../../vectors", import.meta.url))))
