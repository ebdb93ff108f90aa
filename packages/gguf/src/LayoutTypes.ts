/** The codecs of all types that have a layout. */
import { blockCodecs, type Codec, type RowInfo } from "./LayoutCodec.ts"
import { gridCodecs } from "./LayoutGrids.ts"
import { smallCodecs } from "./LayoutSmall.ts"
import type { Name } from "./GgufType.ts"

const codecs: { readonly [K in Name]?: Codec | ((row: RowInfo) => Codec) } = { ...blockCodecs, ...smallCodecs }

/** Looked up when one is asked for: who fetches them later has them by then. */
const grids: { readonly [K in Name]?: Codec } = gridCodecs

/** The codec of a type for rows of this kind, if the type is supported. */
export const codecOf = (type: Name, row: RowInfo): Codec | undefined => {
  const codec = codecs[type] ?? grids[type]
  return typeof codec === "function" ? codec(row) : codec
}

/** The supported types. */
export const supported: ReadonlyArray<Name> = [...Object.keys(codecs), ...Object.keys(grids)] as ReadonlyArray<Name>
