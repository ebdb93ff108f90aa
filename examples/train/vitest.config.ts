/** For those who take this folder out of the workspace, which has a configuration of its own. */
import { defineConfig } from "vitest/config"

// for what hangs: a busy machine takes its time to train
export default defineConfig({ test: { testTimeout: 900_000 } })
