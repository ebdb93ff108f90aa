/** Ordinary schemas, with a value of each. */
const text = "The quick brown fox jumps over the lazy dog; \"quoted\", with a\nline break and 中文字符。 "

export const documents: ReadonlyArray<{ readonly name: string; readonly schema: unknown; readonly value: unknown }> = [
  {
    name: "any JSON",
    schema: true,
    value: { name: "Ada", list: [1, 2.5, -3e-7, null, true], nested: { a: { b: ["c", "d"] } }, text: text.repeat(3) }
  },
  {
    name: "person",
    schema: {
      type: "object",
      properties: {
        name: { type: "string", minLength: 1, maxLength: 80 },
        age: { type: "integer", minimum: 0, maximum: 150 },
        email: { type: "string", pattern: "^[^@\\s]+@[^@\\s]+$" },
        born: { type: "string", format: "date" },
        tags: { type: "array", items: { type: "string" }, maxItems: 20 },
        address: {
          type: "object",
          properties: {
            street: { type: "string" },
            zip: { type: "string", pattern: "^\\d{5}$" },
            city: { type: "string" }
          },
          required: ["street", "city"],
          additionalProperties: false
        }
      },
      required: ["name", "age"],
      additionalProperties: false
    },
    value: {
      name: "Grace Hopper",
      age: 85,
      email: "grace@example.org",
      born: "1906-12-09",
      tags: ["compiler", "navy", "cobol"],
      address: { street: "1 Harbor Drive", zip: "10001", city: "New York" }
    }
  },
  {
    name: "tool call",
    schema: {
      type: "object",
      properties: {
        name: { const: "search" },
        arguments: {
          type: "object",
          properties: {
            query: { type: "string" },
            limit: { type: "integer", minimum: 1, maximum: 100 },
            sort: { enum: ["relevance", "date", "rating"] },
            since: { type: "string", format: "date-time" }
          },
          required: ["query"],
          additionalProperties: false
        }
      },
      required: ["name", "arguments"],
      additionalProperties: false
    },
    value: {
      name: "search",
      arguments: { query: "weather in Paris tomorrow", limit: 10, sort: "date", since: "2026-01-01T00:00:00Z" }
    }
  },
  {
    name: "tree",
    schema: {
      $ref: "#/$defs/node",
      $defs: {
        node: {
          type: "object",
          properties: {
            value: { type: "number" },
            children: { type: "array", items: { $ref: "#/$defs/node" } }
          },
          required: ["value", "children"],
          additionalProperties: false
        }
      }
    },
    value: {
      value: 1.5,
      children: [
        {
          value: 2,
          children: [{ value: 3, children: [] }, { value: -0.125, children: [{ value: 1e-9, children: [] }] }]
        },
        { value: 4, children: [] }
      ]
    }
  },
  {
    name: "events",
    schema: {
      type: "array",
      items: {
        anyOf: [
          {
            type: "object",
            properties: {
              type: { const: "click" },
              x: { type: "number", minimum: 0 },
              y: { type: "number", minimum: 0 }
            },
            required: ["type", "x", "y"],
            additionalProperties: false
          },
          {
            type: "object",
            properties: { type: { const: "key" }, key: { type: "string", minLength: 1, maxLength: 10 } },
            required: ["type", "key"],
            additionalProperties: false
          },
          {
            type: "object",
            properties: { type: { const: "note" }, id: { type: "string", format: "uuid" }, text: { type: "string" } },
            required: ["type", "id"],
            additionalProperties: false
          }
        ]
      },
      maxItems: 1000
    },
    value: Array.from({ length: 12 }, (_, i) =>
      [
        { type: "click", x: i * 10, y: 4.25 },
        { type: "key", key: "Enter" },
        { type: "note", id: "123e4567-e89b-12d3-a456-426614174000", text }
      ][i % 3])
  },
  {
    name: "answer",
    schema: {
      type: "object",
      properties: {
        reasoning: { type: "string" },
        answer: { type: "string", maxLength: 2000 },
        confidence: { type: "number", minimum: 0, maximum: 1 },
        sources: {
          type: "array",
          items: { type: "object", properties: { title: { type: "string" }, page: { type: "integer" } } }
        }
      },
      required: ["reasoning", "answer", "confidence"],
      additionalProperties: false
    },
    value: {
      reasoning: text.repeat(12),
      answer: text.repeat(8),
      confidence: 0.875,
      sources: [{ title: "A title", page: 3 }, { title: "Another", page: 12 }]
    }
  },
  {
    name: "strict tool of OpenAI",
    schema: {
      type: "object",
      properties: {
        location: { type: "string", description: "City and country" },
        unit: { type: ["string", "null"], enum: ["celsius", "fahrenheit", null] },
        days: { type: "integer", minimum: 1, maximum: 14 },
        from: { anyOf: [{ type: "string", format: "date" }, { type: "null" }] }
      },
      required: ["location", "unit", "days", "from"],
      additionalProperties: false
    },
    value: { location: "Bergen, Norway", unit: null, days: 3, from: "2026-11-22" }
  },
  {
    name: "enum of 500",
    schema: { type: "array", items: { enum: Array.from({ length: 500 }, (_, i) => `choice ${(i * 7919) % 1000}`) } },
    value: [0, 7, 250, 499].map((i) => `choice ${(i * 7919) % 1000}`)
  },
  {
    name: "40 objects",
    schema: {
      type: "object",
      properties: Object.fromEntries(
        Array.from({ length: 40 }, (_, i) => [`part_${i}`, {
          type: "object",
          properties: { name: { type: "string" }, count: { type: "integer", minimum: i }, note: { type: "string" } },
          required: ["name"]
        }])
      )
    },
    value: { part_3: { name: "c", count: 44 }, part_21: { name: "v", more: [true] }, other: { x: 1 } }
  },
  {
    name: "40 optional properties",
    schema: {
      type: "object",
      properties: Object.fromEntries(
        Array.from({ length: 40 }, (_, i) => [`property_${i}`, { type: i % 2 === 0 ? "string" : "integer" }])
      ),
      additionalProperties: false
    },
    value: { property_0: "zero", property_7: 7, property_18: "eighteen", property_39: 39 }
  }
]
