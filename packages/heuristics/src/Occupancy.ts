/** Workgroups that are resident at once: none of more than these hides the latency of another one's loads. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"
import { largestBody, registerWidth } from "./Kinds.ts"

/** Workgroups of so many threads on the whole device, each with registers for the largest body, or for 64 loads on their way. */
export const residentWorkgroups = (profile: DeviceProfile, threads: number): number =>
  processorsOf(profile) * Math.floor(quantitiesOf(profile).registerBytes / (registerWidth * largestBody * threads))
