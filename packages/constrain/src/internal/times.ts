/**
 * Times and date-times of RFC 3339, section 5.6, as languages. A leap second, `:60`, is only where it is 23:59 in UTC: so the
 * offset that may follow it is one of two, which the local time determines. Such a time is one of 1440, all remembered until
 * the offset has been read: some 11 000 states, which are written down here without a detour, and are minimal as they are.
 */
import * as CharDfa from "./charDfa.ts"

const minutesOfDay = 24 * 60
const lastMinute = minutesOfDay - 1

/** Where a reader of a time is. */
type Place =
  /** In front of the time: a state of the date's language, which ends with a `T`. */
  | { readonly _tag: "Date"; readonly state: number }
  /** In the hour and minute, with what was read of them. */
  | { readonly _tag: "Minute"; readonly read: string }
  /** Behind the hour and minute, with what was read since: `:`, `:6`, `:60`, `:60.` or `:60.0`. */
  | { readonly _tag: "Leap"; readonly minute: number; readonly read: string }
  /** In the offset of a leap second, with the only way on. */
  | { readonly _tag: "Offset"; readonly rest: string }
  /** In what follows the first digit of any other second. */
  | { readonly _tag: "Other"; readonly at: Other }

/** Places in `5.123+23:30`, from behind the first digit of the second on. */
type Other = "second" | "end of second" | "point" | "fraction" | "sign" | "hour" | "hour 2" | ":" | "minute" | "digit"

/** Ways on, by character. */
type Edges = ReadonlyArray<readonly [chars: string, to: Place]>

const digits = "0123456789"
const other = (at: Other): Place => ({ _tag: "Other", at })
const end: Place = { _tag: "Offset", rest: "" }

/** How the minute of a day is written. */
const written = (minute: number): string =>
  `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`

const afterMinute = (read: string): Edges => {
  const next = read === "2" ? "0123" : ["012", digits, ":", "012345", digits][read.length]!
  return Array.from(next, (char) => {
    const text = read + char
    if (text.length < 5) return [char, { _tag: "Minute", read: text }] as const
    return [char, { _tag: "Leap", minute: 60 * Number(text.slice(0, 2)) + Number(text.slice(3)), read: "" }] as const
  })
}

const afterLeap = (minute: number, read: string): Edges => {
  const on = (char: string): Place => ({ _tag: "Leap", minute, read: read + char })
  if (read === ":") return [["6", on("6")], ["012345", other("second")]]
  if (read.length < 3) return [[":60"[read.length]!, on(":60"[read.length]!)]]
  const fraction: Edges[number] = [digits, { _tag: "Leap", minute, read: ":60.0" }]
  if (read === ":60.") return [fraction]
  return [
    read === ":60" ? [".", on(".")] : fraction,
    // the local time less its offset is 23:59
    ["+", { _tag: "Offset", rest: written((minute + 1) % minutesOfDay) }],
    ["-", { _tag: "Offset", rest: written(lastMinute - minute) }],
    ...(minute === lastMinute ? [["Zz", end] as const] : [])
  ]
}

const afterOther: Readonly<Record<Other, Edges>> = {
  "second": [[digits, other("end of second")]],
  "end of second": [[".", other("point")], ["+-", other("sign")], ["Zz", end]],
  "point": [[digits, other("fraction")]],
  "fraction": [[digits, other("fraction")], ["+-", other("sign")], ["Zz", end]],
  "sign": [["01", other("hour")], ["2", other("hour 2")]],
  "hour": [[digits, other(":")]],
  "hour 2": [["0123", other(":")]],
  ":": [[":", other("minute")]],
  "minute": [["012345", other("digit")]],
  "digit": [[digits, end]]
}

const afterDate = (date: CharDfa.CharDfa, distance: Float64Array, state: number): Edges =>
  distance[state] === 0 ? [["Tt", { _tag: "Minute", read: "" }]] : Array.from(`${digits}-`).flatMap((char) => {
    const to = CharDfa.step(date, state, char.codePointAt(0)!)
    return distance[to] === Infinity ? [] : [[char, { _tag: "Date", state: to }] as const]
  })

const keyOf = (place: Place): string => {
  switch (place._tag) {
    case "Date":
      return `d${place.state}`
    case "Minute":
      return `m${place.read}`
    case "Leap":
      return `l${place.minute}${place.read}`
    case "Offset":
      return `o${place.rest}`
    case "Other":
      return place.at
  }
}

/** All times; behind a date, whose texts are all of one length, and a `T` all date-times. */
export const times = (date?: CharDfa.CharDfa): CharDfa.CharDfa => {
  const distance = date === undefined ? new Float64Array(0) : CharDfa.distances(date)
  const edgesOf = (place: Place): Edges => {
    switch (place._tag) {
      case "Date":
        return afterDate(date!, distance, place.state)
      case "Minute":
        return afterMinute(place.read)
      case "Leap":
        return afterLeap(place.minute, place.read)
      case "Offset":
        return place.rest === "" ? [] : [[place.rest[0]!, { _tag: "Offset", rest: place.rest.slice(1) }]]
      case "Other":
        return afterOther[place.at]
    }
  }
  return CharDfa.fromEdges<Place>({
    alphabet: `${digits}:.+-ZzTt`,
    start: date === undefined ? { _tag: "Minute", read: "" } : { _tag: "Date", state: 0 },
    keyOf,
    edgesOf,
    accepts: (place) => place === end || (place._tag === "Offset" && place.rest === "")
  })
}
