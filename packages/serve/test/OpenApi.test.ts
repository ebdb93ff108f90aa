import { Validator } from "@seriousme/openapi-schema-validator"
import { assert, describe, it } from "vitest"
import * as Api from "../src/Api.ts"

const document = Api.document() as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>
}

describe("/openapi.json", () => {
  it("is a document of OpenAPI 3.1, with references that lead somewhere", async () => {
    const validator = new Validator()
    const result = await validator.validate(structuredClone(document))
    assert.isTrue(result.valid, JSON.stringify(result.errors, undefined, 2))
    assert.strictEqual(validator.version, "3.1")
    assert.isObject(validator.resolveRefs())
  })

  it("tells of all routes", () => {
    assert.sameMembers(Object.keys(document.paths), [
      "/v1/models",
      "/v1/models/{id}",
      "/v1/chat/completions",
      "/v1/completions",
      "/v1/embeddings",
      "/health",
      "/metrics"
    ])
  })
})
