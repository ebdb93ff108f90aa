/** Formats of strings, as languages. A format that is not here is refused. */
import { Result } from "effect"
import { language } from "../Regex.ts"
import type * as CharDfa from "./charDfa.ts"
import type { Strings } from "./normal.ts"
import { times } from "./times.ts"

const date = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)" +
  "|02-(?:0[1-9]|1[0-9]|2[0-8]))" +
  "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"

const duration = "P(?:[0-9]+W|(?:(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)(?:T" +
  "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?" +
  "|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)))"

const octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
const ipv4 = `${octet}(?:\\.${octet}){3}`
const h16 = "[0-9a-fA-F]{1,4}"
const ls32 = `(?:${h16}:${h16}|${ipv4})`
const ipv6 = `(?:(?:${h16}:){6}${ls32}|::(?:${h16}:){5}${ls32}|(?:${h16})?::(?:${h16}:){4}${ls32}` +
  `|(?:(?:${h16}:){0,1}${h16})?::(?:${h16}:){3}${ls32}|(?:(?:${h16}:){0,2}${h16})?::(?:${h16}:){2}${ls32}` +
  `|(?:(?:${h16}:){0,3}${h16})?::${h16}:${ls32}|(?:(?:${h16}:){0,4}${h16})?::${ls32}` +
  `|(?:(?:${h16}:){0,5}${h16})?::${h16}|(?:(?:${h16}:){0,6}${h16})?::)`

// RFC 5321, section 4.1.2, with a point in the domain; the lengths of the two parts are not bounded
const label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
const atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
const local = `(?:${atom}(?:\\.${atom})*|"(?:[ !#-\\[\\]-~]|\\\\[ -~])*")`
const email = `${local}@(?:${label}(?:\\.${label})+|\\[(?:${ipv4}|IPv6:${ipv6})\\])`

// RFC 3986, appendix A; something must follow the colon of the scheme
const percent = "%[0-9a-fA-F]{2}"
const free = "-a-zA-Z0-9._~!$&'()*+,;="
const pchar = `(?:[${free}:@]|${percent})`
const authority = `(?:(?:[${free}:]|${percent})*@)?` +
  `(?:\\[(?:${ipv6}|[vV][0-9a-fA-F]+\\.[${free}:]+)\\]|(?:[${free}]|${percent})*)(?::[0-9]*)?`
const segments = `(?:/${pchar}*)*`
const hierarchy = `(?://${authority}${segments}|/(?:${pchar}+${segments})?|${pchar}+${segments})`
const relative = `(?://${authority}${segments}|/(?:${pchar}+${segments})?|(?:[${free}@]|${percent})+${segments}|)`
const tail = `(?:\\?(?:${pchar}|[/?])*)?(?:#(?:${pchar}|[/?])*)?`
const uri = `[a-zA-Z][a-zA-Z0-9+.-]*:${hierarchy}${tail}`

const pointer = "(?:/(?:[^~/]|~[01])*)*"

const matching = (pattern: string) => (): CharDfa.CharDfa => Result.getOrThrow(language(pattern, "whole"))

/** Languages by name. */
const languages: Readonly<Record<string, () => CharDfa.CharDfa>> = {
  "date": matching(date),
  "time": () => times(),
  "date-time": () => times(matching(date)()),
  "duration": matching(duration),
  "uuid": matching("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"),
  "ipv4": matching(ipv4),
  "ipv6": matching(ipv6),
  "email": matching(email),
  "uri": matching(uri),
  "uri-reference": matching(`(?:${uri}|${relative}${tail})`),
  "json-pointer": matching(pointer),
  "relative-json-pointer": matching(`(?:0|[1-9][0-9]*)(?:#|${pointer})`)
}

const known = new Map<string, Strings>()

/** The strings of a format; undefined if it is not one that is enforced. */
export const formatOf = (name: string): Strings | undefined => {
  if (!Object.hasOwn(languages, name)) return undefined
  const made = known.get(name) ?? { dfa: languages[name]!(), min: 0, max: Infinity }
  known.set(name, made)
  return made
}
