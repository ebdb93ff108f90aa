/** A loss curve as SVG, and a line of text that tells how far training is. */

const size = { width: 720, height: 360, left: 56, right: 16, top: 24, bottom: 40 }

/** Means of neighbouring losses: a curve has no more points than it has room for. */
const thinned = (losses: ReadonlyArray<number>, most = 240): ReadonlyArray<readonly [step: number, loss: number]> => {
  const group = Math.ceil(losses.length / most)
  return Array.from({ length: Math.ceil(losses.length / group) }, (_, i) => {
    const part = losses.slice(i * group, (i + 1) * group)
    return [i * group + part.length, part.reduce((a, b) => a + b, 0) / part.length] as const
  })
}

/** The losses of all steps as a picture; losses on a logarithmic scale. */
export const svg = (losses: ReadonlyArray<number>, title: string): string => {
  const points = thinned(losses)
  const logs = points.map(([, loss]) => Math.log10(Math.max(loss, 1e-4)))
  const low = Math.floor(Math.min(...logs))
  const high = Math.max(low + 1, Math.ceil(Math.max(...logs)))
  const { bottom, height, left, right, top, width } = size
  const x = (step: number): number => left + (width - left - right) * step / losses.length
  const y = (log: number): number => top + (height - top - bottom) * (high - log) / (high - low)
  const line = points.map(([step], i) => `${x(step).toFixed(1)},${y(logs[i]!).toFixed(1)}`).join(" ")
  const decades = Array.from({ length: high - low + 1 }, (_, i) => low + i)
  const quarters = [0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(losses.length * part))
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="white"/>`,
    `<text x="${left}" y="16" font-weight="bold">${title.replace(/[<&]/g, "")}</text>`,
    ...decades.map((log) =>
      `<line x1="${left}" x2="${width - right}" y1="${y(log)}" y2="${y(log)}" stroke="#ddd"/>` +
      `<text x="${left - 8}" y="${y(log) + 4}" text-anchor="end">${10 ** log}</text>`
    ),
    ...quarters.map((step) => `<text x="${x(step)}" y="${height - 20}" text-anchor="middle">${step}</text>`),
    `<text x="${(left + width) / 2}" y="${height - 4}" text-anchor="middle">step</text>`,
    `<text x="14" y="${height / 2}" transform="rotate(-90 14 ${height / 2})" text-anchor="middle">loss, nats</text>`,
    `<polyline points="${line}" fill="none" stroke="#06c" stroke-width="1.5"/>`,
    "</svg>",
    ""
  ].join("\n")
}

/** `[#####-----] 500/1000, loss 0.123, 81 ms a step, 40 s left` */
export const progress = (
  { loss, millis, step, steps }: {
    readonly step: number
    readonly steps: number
    readonly loss: number
    /** Since the first step began. */
    readonly millis: number
  }
): string => {
  const cells = 30
  const full = Math.floor(cells * step / steps)
  const each = millis / step
  const left = Math.round(each * (steps - step) / 1000)
  return `[${"#".repeat(full)}${"-".repeat(cells - full)}] ${step}/${steps}, loss ${loss.toFixed(3)}, ` +
    `${each.toFixed(0)} ms a step, ${left} s left`
}
