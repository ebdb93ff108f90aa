import { h200, wasm } from "@tg/core-uop/DeviceProfile"
import * as Attend from "@tg/models-deepseek2/Attend"
import * as Config from "@tg/models-deepseek2/Config"
import * as Shapes from "@tg/models-deepseek2/Shapes"
import { Result } from "effect"
import { describe, expect, it } from "vitest"

const configOf = (name: string) => {
  const shape = Shapes.make(Shapes.architectures.get(name)!, "q4_0")
  return Result.getOrThrow(Config.fromMetadata(shape))
}

const tokens = [1, 16, 64, 128, 256, 512]

const table = (config: Config.Config, profile: typeof h200) =>
  [0, 512, 4096, 16000].map((start) =>
    `behind ${start}: ${
      tokens.map((T) => `${T} ${Attend.attend(config, profile, { tokens: T, positions: start + T })}`).join(", ")
    }`
  )

describe("to what the tokens of a prompt attend", () => {
  it("GLM-4.7-Flash on an H200", () => {
    expect(table(configOf("glm-4.7-flash"), h200)).toMatchInlineSnapshot(`
      [
        "behind 0: 1 latents, 16 heads, 64 heads, 128 heads, 256 heads, 512 heads",
        "behind 512: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
        "behind 4096: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
        "behind 16000: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
      ]
    `)
  })
  it("DeepSeek-V2-Lite on an H200", () => {
    expect(table(configOf("deepseek-v2-lite"), h200)).toMatchInlineSnapshot(`
      [
        "behind 0: 1 latents, 16 heads, 64 heads, 128 heads, 256 heads, 512 heads",
        "behind 512: 1 latents, 16 latents, 64 latents, 128 latents, 256 heads, 512 heads",
        "behind 4096: 1 latents, 16 latents, 64 latents, 128 latents, 256 heads, 512 heads",
        "behind 16000: 1 latents, 16 latents, 64 latents, 128 latents, 256 heads, 512 heads",
      ]
    `)
  })
  it("GLM-4.7-Flash on a thread of WebAssembly", () => {
    expect(table(configOf("glm-4.7-flash"), wasm)).toMatchInlineSnapshot(`
      [
        "behind 0: 1 latents, 16 heads, 64 heads, 128 heads, 256 heads, 512 heads",
        "behind 512: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
        "behind 4096: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
        "behind 16000: 1 latents, 16 latents, 64 latents, 128 latents, 256 latents, 512 heads",
      ]
    `)
  })

  it("says what both ways cost", () => {
    const config = configOf("glm-4.7-flash")
    const lines = [[512, 0], [512, 4096], [1, 4096]].map(([tokens, start]) => {
      const piece = { tokens: tokens!, positions: tokens! + start! }
      const { attend, because, chosen, headsMicros, latentsMicros, micros } = Attend.explain(config, h200, piece)
      expect(attend).toBe(Attend.attend(config, h200, piece))
      expect(micros).toBeLessThanOrEqual(Math.min(headsMicros, latentsMicros))
      expect(chosen.length).toBeGreaterThan(0)
      expect(because.length > 0).toBe(micros < headsMicros)
      return `${tokens} behind ${start}: heads ${Math.round(headsMicros)}, latents ${Math.round(latentsMicros)} us`
    })
    expect(lines).toMatchInlineSnapshot(`
      [
        "512 behind 0: heads 374, latents 582 us",
        "512 behind 4096: heads 3267, latents 3846 us",
        "1 behind 4096: heads 1353, latents 21 us",
      ]
    `)
  })
})
