/** How fast random blocks are made: `node packages/gguf/bench/random.ts`. */
import { table } from "../src/GgufType.ts"
import * as RandomBlocks from "../src/RandomBlocks.ts"

const chunk = 4 * 2 ** 20
const buffer = new ArrayBuffer(chunk + 4)
for (const type of RandomBlocks.types) {
  const made = RandomBlocks.make({ type, mean: 0, deviation: 0.02, seed: [1, type] })!
  const blocks = Math.floor(chunk / table[type].blockBytes)
  made.next(buffer, blocks)
  const started = performance.now()
  const rounds = 16
  for (let i = 0; i < rounds; i++) made.next(buffer, blocks)
  const bytesPerMilli = rounds * blocks * table[type].blockBytes / (performance.now() - started)
  console.log(`${type.padEnd(6)} ${(bytesPerMilli / 1e6).toFixed(2)} GB/s`)
}
