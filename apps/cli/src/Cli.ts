/** The command tree. */
import { Effect, type Stdio } from "effect"
import { CliOutput, Command } from "effect/cli"
import * as Bench from "./commands/Bench.ts"
import * as Doctor from "./commands/Doctor.ts"
import * as Eval from "./commands/Eval.ts"
import * as Generate from "./commands/Generate.ts"
import * as Inspect from "./commands/Inspect.ts"
import * as Kernel from "./commands/Kernel.ts"
import * as Logits from "./commands/Logits.ts"
import * as Plan from "./commands/Plan.ts"
import * as Profile from "./commands/Profile.ts"
import * as Synth from "./commands/Synth.ts"
import * as Tune from "./commands/Tune.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as Report from "./Report.ts"

/** The version of the command line: that of its package. */
export const version = "0.1.0"

/** All commands. */
export const tg = Command.make("tg").pipe(
  Command.withDescription("Run language models on this machine"),
  Command.withSubcommands([
    Generate.command,
    Inspect.command,
    Logits.command,
    Eval.command,
    Doctor.command,
    Plan.command,
    Bench.command,
    Profile.command,
    Kernel.command,
    Tune.command,
    Synth.command
  ]),
  Command.withGlobalFlags([Flags.Debug])
)

const usual = CliOutput.defaultPresenter

/** Runs the command line. A wrong one is told in a line or two on stderr: its help is a page, and was not asked for. */
export const run = (args: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const stdio = yield* Effect.context<Stdio.Stdio>()
    const presenter: CliOutput.Presenter = {
      present: (event) =>
        event._tag === "InvalidInvocation"
          ? Output.note([
            ...event.errors.map((error) => `error: ${error.message}`),
            `${event.commandPath.join(" ")} --help shows what is possible.`
          ].join("\n")).pipe(Effect.provide(stdio))
          : usual.present(event)
    }
    yield* Command.runWith(tg, { version })(args).pipe(Effect.provide(CliOutput.layerPresenter(presenter)))
  }).pipe(Report.handle({ debug: args.includes("--debug") }))
