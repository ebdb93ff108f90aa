/** Leaves for JSON strings, shared by all grammars that need the same ones. */
import * as CharDfa from "./charDfa.ts"
import * as Leaf from "./leaf.ts"
import type { Leaf as Rule } from "./rule.ts"

/** A JSON string, whatever is in it. */
export const plainString: Rule = Leaf.ofJsonString("string", CharDfa.anything)!
