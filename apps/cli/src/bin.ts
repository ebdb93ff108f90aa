#!/usr/bin/env node
/** The program: the command line on this terminal, these files and this machine. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import { run } from "./Cli.ts"
import { IsTerminal } from "./Progress.ts"

// A reader that goes away between two writes must not become an uncaught error: the next write tells.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {})

run(process.argv.slice(2)).pipe(
  Effect.provideService(IsTerminal, process.stderr.isTTY === true),
  Effect.provide(NodeServices.layer),
  NodeRuntime.runMain({ disableErrorReporting: true })
)
