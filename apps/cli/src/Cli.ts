/** The command tree. */
import { type Context, Effect, Option, type Stdio } from "effect"
import { Argument, CliOutput, Command, TerminalCapabilities } from "effect/cli"
import * as Bench from "./commands/Bench.ts"
import * as Chat from "./commands/Chat.ts"
import * as Config from "./commands/Config.ts"
import * as Doctor from "./commands/Doctor.ts"
import * as Eval from "./commands/Eval.ts"
import * as Generate from "./commands/Generate.ts"
import * as Inspect from "./commands/Inspect.ts"
import * as Kernel from "./commands/Kernel.ts"
import * as Logits from "./commands/Logits.ts"
import * as ModelsCommand from "./commands/ModelsCommand.ts"
import * as Plan from "./commands/Plan.ts"
import * as Profile from "./commands/Profile.ts"
import * as Pull from "./commands/Pull.ts"
import * as Serve from "./commands/Serve.ts"
import * as Synth from "./commands/Synth.ts"
import * as Tune from "./commands/Tune.ts"
import * as Web from "./commands/Web.ts"
import * as Flags from "./Flags.ts"
import * as Help from "./Help.ts"
import * as Misspelled from "./Misspelled.ts"
import * as Output from "./Output.ts"
import * as Report from "./Report.ts"
import { UsageError } from "./Report.ts"
import * as Settings from "./Settings.ts"
import * as Warnings from "./Warnings.ts"

/** The version of the command line: that of its package. */
export const version = "0.1.0"

const running = [
  Chat.command,
  Generate.command,
  Serve.command,
  Web.command,
  Pull.command,
  ModelsCommand.command,
  Inspect.command,
  Eval.command,
  Doctor.command,
  Config.command
] as const
const compiling = [
  Plan.command,
  Bench.command,
  Profile.command,
  Kernel.command,
  Tune.command,
  Logits.command,
  Synth.command
] as const

const described = Command.make("tg").pipe(
  Command.withDescription("Run language models on this machine"),
  Command.withExamples([
    { command: "tg generate \"What is 17 + 25?\"" },
    { command: "tg generate -m model.gguf -p \"Why is the sky blue?\"", description: "With a model of yours" },
    { command: "tg help generate", description: "All flags of a command" }
  ])
)

/** `tg version`, as `tg --version`. */
const versionCommand = Command.make(
  "version",
  {},
  Effect.fn("cli.version")(function*() {
    yield* (yield* CliOutput.Presenter).present({ _tag: "Version", name: "tg", version })
  })
).pipe(Command.withDescription("Show the version"))

/** `tg help COMMAND`, as `tg COMMAND --help`. */
const helpCommand = Command.make(
  "help",
  {
    command: Argument.String("command").pipe(
      Argument.withDescription("The command to explain; without it, all are listed"),
      Argument.optional
    )
  },
  Effect.fn("cli.help")(function*(given) {
    const name = Option.getOrUndefined(given.command)
    if (name !== undefined && !names.includes(name)) {
      return yield* new UsageError({
        message: `there is no command ${JSON.stringify(name)}; there are ${names.join(", ")}`
      })
    }
    yield* Command.runWith(explained, { version })([...(name === undefined ? [] : [name]), "--help"])
  })
).pipe(Command.withDescription("Explain a command"))

const groups = [{ group: "MODELS", commands: running }, { group: "COMPILER AND SPEED", commands: compiling }] as const
const names: ReadonlyArray<string> = groups.flatMap(({ commands }) => commands.map(({ name }) => name))

// what `help` explains: a command cannot contain itself, so it stands in for itself without doing anything
const explained = described.pipe(
  Command.withSubcommands([
    ...groups,
    {
      group: "ABOUT",
      commands: [Command.make("help").pipe(Command.withDescription("Explain a command")), versionCommand]
    }
  ]),
  Command.withGlobalFlags([Flags.Debug, Flags.Pull])
)

/** All commands. */
export const tg = described.pipe(
  Command.withSubcommands([...groups, { group: "ABOUT", commands: [helpCommand, versionCommand] }]),
  Command.withGlobalFlags([Flags.Debug, Flags.Pull])
)

/** Whether nothing but words about tg was asked for: that works with whatever settings. */
const asksAboutTg = (args: ReadonlyArray<string>): boolean => {
  const said = args.includes("--") ? args.slice(0, args.indexOf("--")) : args
  return said.length === 0 || said[0] === "help" || said[0] === "version" ||
    said.some((arg) => ["--help", "-h", "--version", "-v"].includes(arg))
}

/** Pages go to stdout. A wrong invocation is told in a line or two on stderr: its help is a page, and was not asked for. */
const presenter = (stdio: Context.Context<Stdio.Stdio>): CliOutput.Presenter => ({
  present: Effect.fnUntraced(function*(event) {
    const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
    const formatter = Help.formatter(CliOutput.defaultFormatter({ colors: canColor }))
    switch (event._tag) {
      case "Help":
        return yield* Output.printStyled(`${formatter.formatHelpDoc(event.helpDoc)}\n`).pipe(Effect.orDie)
      case "Version":
        return yield* Output.printStyled(`${formatter.formatVersion(event.name, event.version)}\n`).pipe(Effect.orDie)
      case "InvalidInvocation":
        return yield* Output.note([
          ...event.errors.map((error) => `error: ${Misspelled.message(error)}`),
          `${event.commandPath.join(" ")} --help shows what is possible.`
        ].join("\n"))
    }
  }, Effect.provide(stdio))
})

/** A shell that there are no completions for, although the parser of flags takes its name for another one. */
const shellWithout = (args: ReadonlyArray<string>): UsageError | undefined =>
  args.some((arg, i) => arg === "--completions=sh" || arg === "--completions" && args[i + 1] === "sh")
    ? new UsageError({ message: "sh has no completions; there are some for bash, zsh, fish and powershell" })
    : undefined

/** Runs the command line. */
export const run = (args: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const stdio = yield* Effect.context<Stdio.Stdio>()
    const refusal = shellWithout(args)
    if (refusal !== undefined) return yield* refusal
    const settings = asksAboutTg(args) ? new Map() : yield* Settings.load
    yield* Command.runWith(tg, { version })(args).pipe(
      Settings.provide(settings),
      Effect.provide([CliOutput.layerPresenter(presenter(stdio)), Warnings.layer])
    )
  }).pipe(Report.handle({ debug: args.includes("--debug") }))
