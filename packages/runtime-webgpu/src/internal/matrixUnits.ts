import { subgroupSizes } from "./adapter.ts"

/** What kernels by matrix units enable, and what fixes the size of their subgroups. */
const needed: ReadonlyArray<string> = ["chromium-experimental-subgroup-matrix", "subgroup-size-control", "shader-f16"]

/** Factors of a product that subgroups compute, and its sum: M x K and K x N values, and M x N. */
interface Config {
  readonly componentType: string
  readonly resultComponentType: string
  readonly M: number
  readonly N: number
  readonly K: number
}

const isWanted = ({ K, M, N, componentType, resultComponentType }: Config): boolean =>
  componentType === "f16" && resultComponentType === "f32" && [M, N, K].every((size) => size === 16)

/**
 * The features that matrix units take, where an adapter or a device has all of them, its subgroups have 32 threads, and they multiply
 * matrices of 16 x 16 halves and add floats up. Where it does not list what it multiplies, its features decide.
 */
export const matrixFeatures = (
  info: GPUAdapterInfo,
  features: ReadonlySet<string>
): ReadonlyArray<GPUFeatureName> | undefined => {
  const { subgroupMatrixConfigs: configs } = info as { readonly subgroupMatrixConfigs?: ReadonlyArray<Config> }
  const [least, most] = subgroupSizes(info, features) ?? []
  const isOffered = needed.every((name) => features.has(name)) && least === 32 && most === 32 &&
    (configs === undefined || configs.some(isWanted))
  // the types know no experiments
  return isOffered ? needed as ReadonlyArray<GPUFeatureName> : undefined
}
