/** Columns for the terminal. */

/** Rows of cells, the first one the heading: the first column to the left, the others to the right. */
export const table = (rows: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) =>
    row.map((cell, column) => column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)).join("  ")
  )
}
