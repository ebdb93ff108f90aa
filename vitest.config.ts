import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    projects: ["packages/*", "apps/*", { test: { name: "workspace", include: ["test/**/*.test.ts"] } }]
  }
})
