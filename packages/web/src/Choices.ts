/** What a page can ask for. In a module of its own: the worker needs no schemas of requests. */

/** Where a model may run. */
export const choices = ["auto", "webgpu", "wasm"] as const
