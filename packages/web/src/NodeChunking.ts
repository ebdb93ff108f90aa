/** Which sources of a bundle lie together: those that are fetched together. */

/** A part of a bundle that was cut wherever it can be. */
export interface Part {
  readonly fileName: string
  readonly name: string
  readonly facadeModuleId: string | null
  /** Whether it is a script of its own, or imported when it is needed. */
  readonly isEntry: boolean
  readonly isDynamicEntry: boolean
  readonly imports: ReadonlyArray<string>
  readonly dynamicImports: ReadonlyArray<string>
  readonly moduleIds: ReadonlyArray<string>
}

/** What an entry is called, with the package that it is of: `models-llama-Family`. */
const nameOf = ({ facadeModuleId, name }: Part): string => {
  const [, of] = /[\\/]([^\\/]+)[\\/]src[\\/][^\\/]+$/.exec(facadeModuleId ?? "") ?? []
  return of === undefined ? name : `${of}-${name}`
}

/** A part with all that it imports at once. */
const closure = (parts: ReadonlyMap<string, Part>, start: Part, found = new Set<Part>()): Set<Part> => {
  if (found.has(start)) return found
  found.add(start)
  for (const next of start.imports) {
    const part = parts.get(next)
    if (part !== undefined) closure(parts, part, found)
  }
  return found
}

/** What is there already when each entry is asked for, whoever asks for it: the largest sets that fit each other. */
const known = (parts: ReadonlyArray<Part>, closures: ReadonlyMap<Part, ReadonlySet<Part>>) => {
  const everything: ReadonlySet<Part> = new Set(parts)
  const none: ReadonlySet<Part> = new Set()
  let before = new Map([...closures.keys()].map((entry) => [entry, entry.isEntry ? none : everything]))
  for (;;) {
    const next = new Map([...before].map(([entry, known]) => {
      const asking = entry.isEntry ?
        [] :
        [...closures].filter(([, own]) =>
          [...own].some(({ dynamicImports }) => dynamicImports.includes(entry.fileName))
        )
      return [entry, asking.reduce((all, [from, own]) => all.intersection(own.union(before.get(from)!)), known)]
    }))
    if ([...next].every(([entry, { size }]) => size === before.get(entry)!.size)) return before
    before = next
  }
}

/** What decides besides who asks. */
export interface Rules {
  /** What is imported when it is needed, but always together, by the names of its sources: what any of a list fetches is one group. */
  readonly always: ReadonlyArray<ReadonlyArray<string>>
  /** Entries of which one is always fetched: what each of them fetches lies in the group of another, which is there before them. */
  readonly each: ReadonlyArray<{ readonly of: ReadonlyArray<string>; readonly into: string }>
}

/** The name of the group of each source: the entries that fetch it and have not got it, but for what the rules say. */
export const groups = (parts: ReadonlyArray<Part>, { always, each }: Rules): ReadonlyMap<string, string> => {
  const byFile = new Map(parts.map((part) => [part.fileName, part]))
  const entries = parts.filter(({ isDynamicEntry, isEntry }) => isEntry || isDynamicEntry)
  const closures = new Map(entries.map((entry) => [entry, closure(byFile, entry)]))
  const before = known(parts, closures)
  return new Map(parts.flatMap((part) => {
    const asking = entries.filter((entry) => closures.get(entry)!.has(part) && !before.get(entry)!.has(part))
    const names = asking.map(nameOf)
    const name = always.find((group) => asking.some(({ name }) => group.includes(name)))?.[0] ??
      each.find(({ of }) => of.every((one) => names.includes(one)))?.into ?? names.sort().join("+")
    return part.moduleIds.map((id) => [id, name] as const)
  }))
}
