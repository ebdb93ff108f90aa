#!/usr/bin/env node
/** The program: the command line on this terminal, these files and this machine. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import { Tty } from "./chat/Terminal.ts"
import { run } from "./Cli.ts"
import * as Screen from "./Screen.ts"
import { runMain } from "./Signals.ts"

// A reader that goes away between two writes must not become an uncaught error: the next write tells.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {})

run(process.argv.slice(2)).pipe(
  Effect.provideService(Screen.Screen, Screen.of(process.stderr, process.env)),
  Effect.provideService(
    Tty,
    process.stdin.isTTY === true && process.stdout.isTTY === true
      ? { input: process.stdin, output: process.stdout }
      : undefined
  ),
  Effect.provide(NodeServices.layer),
  runMain
)
