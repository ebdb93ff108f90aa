/**
 * The experts of many tokens: pairs of a token and one of its experts are put in order by expert, in groups of places
 * that all belong to one expert, so that a group is a tile of a product and reads its expert's weights once.
 *
 * The order is a counting sort. A pair's place is the start of its expert's groups and the number of earlier tokens with
 * the same expert. How many groups an expert needs is not known before; together the experts need no more than all pairs
 * fill, and one each that is not full.
 */
import * as DType from "@tg/core-uop/DType"
import { iota, scalar, type Tensor } from "@tg/tensor/Tensor"
import { tileTokens } from "./Order.ts"
import { once, tiled } from "./Schedule.ts"

/** Where the pairs are; `i32`. Places that no pair takes hold token 0, and nobody reads what becomes of it. */
export interface Places {
  /** The expert of each group, `[groups]`. */
  readonly expert: Tensor
  /** The token in each place, `[groups, tileTokens]`. */
  readonly token: Tensor
  /** The place of each pair, `[T, used]`. */
  readonly place: Tensor
}

const i32 = DType.i32
const stored = (x: Tensor): Tensor => once(x.label("ffn_moe_places"))
const counted = (like: Tensor, n: Tensor | number): Tensor => iota(like.arena, n).cast(i32)

/** Puts the pairs of `chosen [T, used]` in order, T = `tileTokens` tiles; `count` experts. */
export const places = (chosen: Tensor, tiles: Tensor, count: number): Places => {
  const tokens = chosen.dim(0)
  const used = Number(chosen.dim(1))
  const experts = counted(chosen, count)
  const picks = chosen.cast(i32).unsqueeze(-1).eq(experts)
  const has = stored(picks.cast(i32).sum(1)) // [T, experts], 0 or 1
  const byTile = has.reshape([tiles.node, tileTokens, count])

  // tokens before this one that have the expert: in earlier tiles, and in the tile
  const inTile = stored(byTile.sum(1))
  const tile = counted(chosen, tiles)
  const earlierTiles = tile.unsqueeze(-1).gt(tile).unsqueeze(-1).where(inTile.unsqueeze(0), 0).sum(1)
  const within = counted(chosen, tileTokens)
  const earlier = within.unsqueeze(-1).gt(within).reshape([1, tileTokens, tileTokens, 1])
    .where(byTile.unsqueeze(1), 0).sum(2)
  const rank = stored(earlierTiles).unsqueeze(1).add(earlier).reshape([tokens, count])

  const needed = stored(inTile.sum(0).add(tileTokens - 1).shr(Math.log2(tileTokens))) // groups of each expert
  const end = stored(experts.unsqueeze(-1).ge(experts).where(needed, 0).sum(-1))
  const own = stored(end.sub(needed).mul(tileTokens).add(rank)) // [T, experts]
  const place = stored(picks.where(own.unsqueeze(1), 0).sum(-1))

  const groups = tiles.mul(used).add(count)
  const group = counted(chosen, groups)
  const expert = stored(end.le(group.unsqueeze(-1)).cast(i32).sum(-1).minimum(count - 1))
  // one token at most is in a place
  const taken = stored(has.ne(0).where(own, -1).transpose()).gather(expert).unsqueeze(1)
  const here = group.mul(tileTokens).unsqueeze(-1).add(within).unsqueeze(-1)
  const token = stored(taken.eq(here).where(counted(chosen, scalar(chosen.arena, tokens)), 0).sum(-1))
  return { expert, token, place }
}

/** Rows of `x [T, n]` for the places, `[groups, tileTokens, n]`. */
export const toPlaces = ({ token }: Places, x: Tensor): Tensor => tiled(x.gather(token).label("ffn_moe_places"))

/** The rows of all pairs, `[T, used, n]`, of what was computed in the places. */
export const fromPlaces = ({ place }: Places, y: Tensor): Tensor => {
  const [groups, size, n] = y.shape
  return y.reshape([scalar(y.arena, groups!).mul(Number(size)).node, n!]).gather(place)
}
