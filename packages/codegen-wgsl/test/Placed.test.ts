import { assert, describe, it } from "@effect/vitest"
import { assertEquals } from "@effect/vitest/utils"
import type { Placement, Program } from "@tg/core-uop/Program"
import { place } from "../src/Placed.ts"

const program = (
  types: ReadonlyArray<string>,
  body: ReadonlyArray<string>,
  vars: ReadonlyArray<string> = []
): Program => ({
  name: "written",
  target: "wgsl",
  code: [
    "// written",
    ...types.map((type, i) => `@group(0) @binding(${i}) var<storage, read_write> data${i}: array<${type}>;`),
    ...(vars.length === 0
      ? []
      : [`@group(0) @binding(${types.length}) var<uniform> vars: array<vec4<i32>, ${Math.ceil(vars.length / 4)}>;`]),
    "@compute @workgroup_size(1, 1, 1)",
    "fn main() {",
    ...body,
    "}"
  ].join("\n"),
  workgroup: [1, 1, 1],
  grid: [1, 1, 1],
  bindings: types.map((_, slot) => ({ slot, access: slot === 0 ? "write" : "read", bytes: 64 })),
  vars
})

/** The arguments of up to three bindings: two in the first shared one, one in the third. */
const placement: Placement = {
  group: ["write", "write", "read"],
  places: [{ at: 0, offset: 0 }, { at: 0, offset: 256 }, { at: 2, offset: 512 }],
  vars: ["T", "startPos"]
}

const bodyOf = (given: Program, places = placement.places): ReadonlyArray<string> => {
  const placed = place(given, { ...placement, places: places.slice(0, given.bindings.length) })
  const lines = String(placed?.code).split("\n")
  return lines.slice(lines.indexOf("fn main() {") + 1, -1)
}

describe("placed programs", () => {
  it("read and write words as components of vectors, and keep the bits of floats", () => {
    assertEquals(
      bodyOf(program(["f32", "f32", "u32"], [
        "  data0[v0] = data1[v1 + 3] + f32(data2[data2[5]]);",
        "  if (v0 < 1) { data0[7] = x1; }"
      ])),
      [
        "  given0[(v0) >> 2u][(v0) & 3] = bitcast<u32>(f32(bitcast<f32>(given0[((v1 + 3) >> 2u) + 16][(v1 + 3) & 3]) + " +
        "f32(given2[((given2[33][1]) >> 2u) + 32][(given2[33][1]) & 3])));",
        "  if (v0 < 1) { given0[1][3] = bitcast<u32>(f32(x1)); }"
      ]
    )
  })

  it("read and write vectors whole, and their components", () => {
    assertEquals(
      bodyOf(program(["vec4<f32>", "vec4<u32>", "vec4<f32>"], [
        "  let x0 = data1[v0];",
        "  let x1 = data2[v0 >> 2u][v0 & 3];",
        "  let x2 = data2[v0].y + data1[3][2];",
        "  data0[v0] = data2[v0];",
        "  data0[v0][1] = x1;"
      ])),
      [
        "  let x0 = given0[(v0) + 16];",
        "  let x1 = bitcast<f32>(given2[(v0 >> 2u) + 32][v0 & 3]);",
        "  let x2 = bitcast<f32>(given2[(v0) + 32][1]) + given0[19][2];",
        "  given0[v0] = bitcast<vec4<u32>>(vec4<f32>(bitcast<vec4<f32>>(given2[(v0) + 32])));",
        "  given0[v0][1] = bitcast<u32>(f32(x1));"
      ]
    )
  })

  it("read and write pairs", () => {
    assertEquals(bodyOf(program(["vec2<u32>", "vec2<f32>"], ["  data0[v0] = x0;", "  let x1 = data1[v0];"])), [
      "  { let given = x0; given0[(v0) >> 1u][((v0) & 1) * 2] = given.x; given0[(v0) >> 1u][((v0) & 1) * 2 + 1] = given.y; }",
      "  let x1 = vec2<f32>(bitcast<f32>(given0[((v0) >> 1u) + 16][((v0) & 1) * 2]), " +
      "bitcast<f32>(given0[((v0) >> 1u) + 16][((v0) & 1) * 2 + 1]));"
    ])
  })

  it("declare what they bind by the numbers of the group, and find variables among those of all", () => {
    const placed = place(program(["f32", "f32", "u32"], ["  data0[0] = data1[vars[0].x];"], ["startPos"]), placement)!
    assert.include(placed.code, "@group(0) @binding(0) var<storage, read_write> given0: array<vec4<u32>>;")
    assert.include(placed.code, "@group(0) @binding(2) var<storage, read> given2: array<vec4<u32>>;")
    assert.include(placed.code, "@group(0) @binding(3) var<uniform> vars: array<vec4<i32>, 1>;")
    assert.include(placed.code, "(vars[0].y) >> 2u")
    assertEquals(placed.bindings, [
      { slot: 0, access: "write", at: 0, bytes: 320 },
      { slot: 2, access: "read", at: 2, bytes: 576 }
    ])
    assertEquals(placed.vars, ["T", "startPos"])
  })

  it("are refused where the text says something else of an argument than where it is read or written", () => {
    const one = { ...placement, places: [{ at: 0, offset: 0 }] }
    assert.isUndefined(place(program(["u32"], ["  let x1 = &data0[0];"]), one))
    assert.isUndefined(place(program(["u32"], ["  let x1 = arrayLength(&data0);"]), one))
    assert.isUndefined(place(program(["atomic<u32>"], ["  atomicAdd(&data0[0], 1u);"]), one))
    assert.isUndefined(place({ ...program([], []), code: new Uint8Array(1) }, one))
  })

  it("are refused at offsets inside of a vector", () => {
    assert.isUndefined(place(program(["u32"], ["  data0[0] = 1u;"]), { ...placement, places: [{ at: 0, offset: 4 }] }))
  })
})
