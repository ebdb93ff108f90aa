/** How `--help` looks: what newcomers need first, with examples; then the other flags by topic, and those of all commands. */
import { Context } from "effect"
import type { CliOutput, HelpDoc } from "effect/cli"

/** The flags that come first, in this order. Behind them are a command's own, as it declares them. */
const newcomers: ReadonlyArray<string> = ["model", "prompt", "system", "max-tokens", "temperature"]

/** Flags that many commands share and few people need. A flag that is in none of them is a command's own. */
const topics: ReadonlyArray<{ readonly title: string; readonly flags: ReadonlyArray<string> }> = [
  { title: "HOW TOKENS ARE DRAWN", flags: ["top-k", "top-p", "min-p", "seed"] },
  { title: "PRECISION", flags: ["kv", "activations"] },
  { title: "ANOTHER DEVICE", flags: ["profile", "limit", "no-subgroups", "no-matrix-units"] },
  {
    title: "WHEN SOMETHING IS WRONG",
    flags: ["check", "no-tune", "no-egraph", "persistent", "no-persistent", "no-cache"]
  }
]

/** A help page's flags: those that come first, and the others by topic. */
export const arrange = (flags: ReadonlyArray<HelpDoc.FlagDoc>): {
  readonly first: ReadonlyArray<HelpDoc.FlagDoc>
  readonly topics: ReadonlyArray<{ readonly title: string; readonly flags: ReadonlyArray<HelpDoc.FlagDoc> }>
} => {
  // a seed is of drawing tokens only where tokens are drawn
  const draws = flags.some(({ name }) => name === "top-k")
  const titleOf = ({ name }: HelpDoc.FlagDoc): string | undefined =>
    name === "seed" && !draws ? undefined : topics.find((topic) => topic.flags.includes(name))?.title
  const own = flags.filter((flag) => titleOf(flag) === undefined)
  return {
    first: [
      ...newcomers.flatMap((name) => own.filter((flag) => flag.name === name)),
      ...own.filter(({ name }) => !newcomers.includes(name))
    ],
    topics: topics.map(({ title }) => ({ title, flags: flags.filter((flag) => titleOf(flag) === title) }))
      .filter((topic) => topic.flags.length > 0)
  }
}

/** A section of flags as Effect's formatter writes it, under another title. */
const section = (base: CliOutput.Formatter, title: string, flags: ReadonlyArray<HelpDoc.FlagDoc>): string => {
  const page = base.formatHelpDoc({ description: "", usage: "", annotations: Context.empty(), flags })
  return page.slice(page.search(/^.*FLAGS/m)).replace("FLAGS", title)
}

/** Effect's formatter, with the flags arranged. */
export const formatter = (base: CliOutput.Formatter): CliOutput.Formatter => ({
  ...base,
  formatHelpDoc: (doc) => {
    const { first, topics } = arrange(doc.flags)
    const all = doc.globalFlags ?? []
    return [
      base.formatHelpDoc({ ...doc, flags: first, globalFlags: [] }).trimEnd(),
      ...topics.map(({ flags, title }) => section(base, title, flags)),
      ...(all.length === 0 ? [] : [section(base, "FLAGS OF ALL COMMANDS", all)])
    ].join("\n\n")
  }
})
