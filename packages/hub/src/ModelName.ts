/**
 * What people call a model: `hf:owner/repo/file.gguf`, `hf:owner/repo:Q4_K_M`, `https://host/file.gguf`, or a short name.
 * A revision follows the repository: `hf:owner/repo@v1.0:Q4_K_M`.
 */
import { Result, Schema } from "effect"
import { type Alias, aliases } from "./Aliases.ts"

/** A repository of a hub. */
export interface Repository {
  readonly owner: string
  readonly repo: string
  /** A branch, tag or commit; the hub's default where there is none. */
  readonly revision?: string
}

/** A file of a repository. Of a split model any part stands for all. */
export interface HubFile extends Repository {
  readonly type: "file"
  readonly file: string
}

/** The model of a repository with this quantisation, or the only one there. */
export interface HubModel extends Repository {
  readonly type: "model"
  readonly quant?: string
}

/** A file at an address. */
export interface Address {
  readonly type: "address"
  readonly url: string
}

/** A name, understood. */
export type ModelName = HubFile | HubModel | Address

/** A name that is none. */
export class InvalidName extends Schema.TaggedError<InvalidName>()("InvalidName", {
  name: Schema.String,
  detail: Schema.String
}) {
  override get message(): string {
    return `${this.name} names no model: ${this.detail}`
  }
}

const forms = "hf:owner/repo/file.gguf, hf:owner/repo:Q4_K_M, an https:// address, or one of " +
  Object.keys(aliases).join(", ")

const word = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/
const revisionPattern = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/
const quantPattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$/

/** Whether a text is meant as a name and not as the path of a file. */
export const isName = (text: string): boolean => /^(hf:|https?:\/\/)/i.test(text) || aliasOf(text) !== undefined

/** Reads a name. */
export const parse = (text: string): Result.Result<ModelName, InvalidName> => {
  if (/^https?:\/\//i.test(text)) return parseAddress(text)
  if (/^hf:/i.test(text)) return parseHub(text)
  const found = aliasOf(text)
  return found === undefined ? refuse(text, `give ${forms}`) : Result.succeed(found)
}

/** The name as it is kept: one spelling for each. */
export const print = (name: ModelName): string => {
  if (name.type === "address") return name.url
  const where = `hf:${name.owner}/${name.repo}${name.revision === undefined ? "" : `@${name.revision}`}`
  if (name.type === "file") return `${where}/${name.file}`
  return name.quant === undefined ? where : `${where}:${name.quant}`
}

/** The short name that leads to the same model, if there is one. */
export const shortOf = (name: ModelName): string | undefined => {
  if (name.type !== "model" || name.revision !== undefined) return undefined
  const found = Object.entries(aliases).find(([, { owner, repo }]) => owner === name.owner && repo === name.repo)
  if (found === undefined || name.quant === undefined) return undefined
  return name.quant === found[1].quant ? found[0] : `${found[0]}:${name.quant}`
}

const modelOf = ({ owner, repo }: Alias, quant: string): HubModel => ({ type: "model", owner, repo, quant })

const aliasOf = (text: string): HubModel | undefined => {
  const [short = "", quant, ...more] = text.split(":")
  const key = short.toLowerCase()
  if (!Object.hasOwn(aliases, key) || more.length > 0) return undefined
  const alias = aliases[key]!
  if (quant === undefined) return modelOf(alias, alias.quant)
  return quantPattern.test(quant) ? modelOf(alias, quant.toUpperCase()) : undefined
}

const parseHub = (text: string): Result.Result<ModelName, InvalidName> => {
  const found = /^hf:\/{0,2}([^/:@]+)\/([^/:@]+)(?:@([^:]+?))?(?:(:.*)|(\/.*\.gguf))?$/i.exec(text)
  if (found === null) return refuse(text, "after hf: come owner/repo, and /file.gguf or :QUANTISATION")
  const [, owner = "", repo = "", revision, quant, file] = found
  if (!word.test(owner) || !word.test(repo)) return refuse(text, "an owner or repository has no such name")
  if (revision !== undefined && (!revisionPattern.test(revision) || revision.includes(".."))) {
    return refuse(text, `@${revision} is no revision`)
  }
  const where: Repository = { owner, repo, ...(revision === undefined ? {} : { revision }) }
  if (file !== undefined) {
    const path = file.slice(1)
    return isPath(path)
      ? Result.succeed({ type: "file", ...where, file: path })
      : refuse(text, `${path} is no path inside a repository`)
  }
  if (quant === undefined) return Result.succeed({ type: "model", ...where })
  return quantPattern.test(quant.slice(1))
    ? Result.succeed({ type: "model", ...where, quant: quant.slice(1).toUpperCase() })
    : refuse(text, `${quant.slice(1)} is no quantisation; it is a word like Q4_K_M`)
}

/** Whether a text is a path inside a folder: what becomes a file name on this machine must not lead anywhere else. */
export const isPath = (path: string): boolean =>
  // eslint-disable-next-line no-control-regex
  !/[\\:\u0000-\u001f]/.test(path) && path.split("/").every((part) => part !== "" && part !== "." && part !== "..")

/** Whether a host is this machine. */
export const isLoopback = (host: string): boolean => /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/i.test(host)

const parseAddress = (text: string): Result.Result<Address, InvalidName> => {
  const url = URL.parse(text)
  if (url === null) return refuse(text, "it is no address")
  if (url.username !== "" || url.password !== "") {
    return refuse(`${url.protocol}//..@${url.host}${url.pathname}`, "an address must not contain a password")
  }
  if (url.protocol === "http:" && !isLoopback(url.hostname)) {
    return refuse(text, "over http:// anyone on the way can change it; use https:// (http:// is for this machine)")
  }
  url.hash = ""
  return Result.succeed({ type: "address", url: url.href })
}

const refuse = (name: string, detail: string) => Result.fail(new InvalidName({ name, detail }))
