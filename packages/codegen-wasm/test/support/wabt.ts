import load from "wabt"

const wabt = await load()
const features = { simd: true, relaxed_simd: true, sat_float_to_int: true, threads: true, bulk_memory: true }

/** What wabt makes of the text of a module: the same bytes are wanted of our own assembler. */
export const wabtBytes = (text: string): Uint8Array => {
  const module = wabt.parseWat("module.wat", text, features)
  try {
    return Uint8Array.from(module.toBinary({}).buffer)
  } finally {
    module.destroy()
  }
}
