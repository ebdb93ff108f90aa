/** A script that has code books fetched, for a test of bundles. */
import { codecOf } from "@tg/gguf/LayoutTypes"
import { Effect } from "effect"
import * as CodeBooks from "../../src/CodeBooks.ts"

export { codecOf }

/** Fetches them. */
export const fetchBooks = (): Promise<void> => Effect.runPromise(CodeBooks.fetched)
