/** What products with quantised weights read. */
import type { DeviceProfile } from "@tg/core-uop/DeviceProfile"
import type { Activations } from "@tg/models-deepseek2/Block"

/** `auto` is `int8` where the device multiplies bytes in one instruction, `float` elsewhere. */
export type ActivationPolicy = Activations | "auto"

/** What a policy means on a device. */
export const activationsOn = (
  { packedDot }: Pick<DeviceProfile, "packedDot">,
  policy: ActivationPolicy = "auto"
): Activations => policy !== "auto" ? policy : packedDot ? "int8" : "float"
