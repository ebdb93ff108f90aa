/** Numbers as people read them. */

const units = ["bytes", "kB", "MB", "GB", "TB"] as const

/** `1.2 GB` */
export const bytes = (n: number): string => {
  const power = n < 1000 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(n) / 3))
  const value = n / 1000 ** power
  return `${value.toFixed(power === 0 || value >= 100 ? 0 : 1)} ${units[power]}`
}

/** `8.0 billion` */
export const parameters = (n: number): string =>
  n >= 1e9 ? `${(n / 1e9).toFixed(1)} billion` : `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} million`

/** `12,000` */
export const count = (n: number): string => n.toLocaleString("en")
