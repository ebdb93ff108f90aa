/**
 * Whether everything is asked: `TG_FULL=1`. Software Vulkan's compiler takes half a minute for a model, so that usually each
 * device, cache, limit and kind of step is tried with the models that need it most.
 */
export const isFull = process.env["TG_FULL"] === "1"

/** `TG_PART=3/8`: of a long test the third of eight parts, so that it can be run in pieces; all of it, if it is not said. */
export const partOf = <A>(all: ReadonlyArray<A>): ReadonlyArray<A> => {
  const [part, parts] = (process.env["TG_PART"] ?? "1/1").split("/").map(Number)
  if (!(Number.isInteger(part) && Number.isInteger(parts) && part! >= 1 && part! <= parts!)) {
    throw new Error(`TG_PART is ${process.env["TG_PART"]}; it says which part of how many is run: 3/8`)
  }
  const size = Math.ceil(all.length / parts!)
  return all.slice((part! - 1) * size, part! * size)
}
