/** Workgroups that are resident at once: none of more than these hides the latency of another one's loads. */
import { type DeviceProfile, processorsOf, quantitiesOf } from "@tg/core-uop/DeviceProfile"

/** Bytes of the registers of a thread: 96, as many as a tile of 16 tokens x 4 rows takes with its operands, or 64 loads on their way. */
const threadBytes = 4 * 96

/** Workgroups of so many threads on the whole device. */
export const residentWorkgroups = (profile: DeviceProfile, threads: number): number =>
  processorsOf(profile) * Math.floor(quantitiesOf(profile).registerBytes / (threadBytes * threads))
