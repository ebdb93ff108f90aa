/**
 * Whether everything is asked: `TG_FULL=1`. Software Vulkan's compiler takes half a minute for a model, so that usually each
 * device, cache, limit and kind of step is tried with the models that need it most.
 */
export const isFull = process.env["TG_FULL"] === "1"
