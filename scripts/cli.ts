/**
 * The command line from its sources, for `pnpm cli`. pnpm runs it in the workspace's root: paths that people give mean where they
 * stand, which is what `INIT_CWD` tells.
 */
import * as module from "node:module"
import * as process from "node:process"

// sources without their types, compiled, are kept in the folder for temporary files
module.enableCompileCache()
process.chdir(process.env["INIT_CWD"] ?? process.cwd())
await import("../apps/cli/src/bin.ts")
