/** What products with quantised weights read. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Activations } from "@tg/model-parts/Product"

/**
 * `auto` is `int8` where the device multiplies bytes in one instruction, `float` elsewhere. `int8` is `int8-all` on a CPU,
 * which launches a kernel in a microsecond.
 */
export type ActivationPolicy = Activations | "auto"

/** What a policy means on a device. */
export const activationsOn = (
  { kind, packedDot }: Pick<DeviceProfile, "kind" | "packedDot">,
  policy: ActivationPolicy = "auto"
): Activations => {
  const wanted = policy !== "auto" ? policy : packedDot ? "int8" : "float"
  return wanted === "int8" && kind === "cpu" ? "int8-all" : wanted
}
