import { defineConfig } from "vite"
import { options } from "./src/Build.ts"

export default defineConfig(options)
