/** What modules of a bundle call that they give each other. */

/** A module of a bundle, as far as that goes. */
export interface Named {
  readonly file: string
  readonly text: string
}

/** The exports of a module, behind all else. */
const exported = /export\{([^}]*)\};?\s*$/

/** Names of an entry that are longer are those that its source gives: whoever imports it knows them. */
const longest = 2

/** The parts of `a as b, c`. */
const pairsOf = (list: string): ReadonlyArray<readonly [from: string, to: string]> =>
  list.split(",").filter((part) => part !== "").map((part) => {
    const [from, to = from] = part.split(" as ")
    return [from!, to!]
  })

const listed = (pairs: Iterable<readonly [from: string, to: string]>): string =>
  [...new Set(Array.from(pairs, ([from, to]) => from === to ? from : `${from} as ${to}`))].sort().join(",")

const pathOf = ({ file }: Named): string => `"./${file}"`

/** The imports of a module by name, in the text of another. */
const importsOf = (from: Named): RegExp => new RegExp(`import\\{([^}]*)\\}from${RegExp.escape(pathOf(from))}`, "g")

/** Whether all that others have of a module are imports by name. */
const isByName = (module: Named, all: ReadonlyArray<Named>): boolean =>
  all.every(({ text }) =>
    !text.includes(`import(\`./${module.file}\`)`) && !text.includes(`import(${pathOf(module)})`) &&
    text.split(`from${pathOf(module)}`).length - 1 === [...text.matchAll(importsOf(module))].length
  )

/**
 * The modules with one name for each thing that one of them gives others: what it is called inside. Bundlers name it a second time, which is
 * 1 kB of gzip where hundreds are named. What is imported when it is needed keeps its names, as they are looked up.
 */
export const withOwnNames = <M extends Named>(modules: ReadonlyArray<M>): ReadonlyArray<M> => {
  let all = modules
  for (const { file } of modules) {
    const module = all.find((each) => each.file === file)!
    const found = exported.exec(module.text)
    if (found === null || !isByName(module, all)) continue
    const names = pairsOf(found[1]!).map(([own, name]) => [own, name.length > longest ? name : own, name] as const)
    const nameOf = new Map(names.map(([, to, name]) => [name, to]))
    all = all.map((each) => ({
      ...each,
      text: each.file === file
        ? `${each.text.slice(0, found.index)}export{${listed(names.map(([own, to]) => [own, to] as const))}};`
        : each.text.replace(
          importsOf(module),
          (_, list: string) =>
            `import{${listed(pairsOf(list).map(([name, to]) => [nameOf.get(name) ?? name, to] as const))}}from${
              pathOf(module)
            }`
        )
    }))
  }
  return all
}
